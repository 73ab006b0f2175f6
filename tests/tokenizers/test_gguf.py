"""Tokenizers of GGUF files, which the `gguf` package writes and reads."""

import re

import gguf
import numpy as np
import pytest
import tokenizers
from hypothesis import given
from tokenizers import decoders, models, normalizers
from transformers.convert_slow_tokenizer import generate_merges

from mytorch.tokenizers import BPETokenizer, SentencePieceBPE, from_gguf
from mytorch.tokenizers.pre_tokenizer import PATTERNS
from tests.tokenizers.test_sentencepiece_bpe import trained as sentencepiece
from tests.tokenizers.texts import HARD, TEXTS, corpus, trained

Type = gguf.TokenType


def metadata(path, **keys):
    """The metadata of a GGUF file with these keys, written and read."""
    writer = gguf.GGUFWriter(path, "llama")
    add = {
        "model": writer.add_tokenizer_model, "pre": writer.add_tokenizer_pre, "tokens": writer.add_token_list,
        "merges": writer.add_token_merges, "scores": writer.add_token_scores,
        "token_type": writer.add_token_types, "bos_token_id": writer.add_bos_token_id,
        "eos_token_id": writer.add_eos_token_id, "add_bos_token": writer.add_add_bos_token,
        "add_eos_token": writer.add_add_eos_token, "add_space_prefix": writer.add_add_space_prefix,
    }
    for key, value in keys.items():
        add[key](value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return {name: found.contents() for name, found in gguf.GGUFReader(path).fields.items()}


def byte_level(**changes):
    ours = trained()
    tokens = sorted(ours.vocab, key=ours.vocab.get)[:-1]
    tokens += ["<|endoftext|>", "<tool>", "<unused>", "Ġdefinitely"]
    kinds = [Type.NORMAL] * 799 + [Type.CONTROL, Type.USER_DEFINED, Type.UNUSED, Type.NORMAL]
    keys = {
        "model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds,
        "merges": [" ".join(pair) for pair in ours.merges], "bos_token_id": 799, "eos_token_id": 799,
    }
    return keys | changes


def llama(**changes):
    vocab, _ = sentencepiece()
    tokens = sorted(vocab, key=vocab.get)
    kinds = (
        [Type.UNKNOWN, Type.CONTROL, Type.CONTROL] + [Type.BYTE] * 256 + [Type.NORMAL] * (len(tokens) - 259)
    )
    keys = {
        "model": "llama", "tokens": tokens, "token_type": kinds, "bos_token_id": 1, "eos_token_id": 2,
        "scores": [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)],
    }
    return keys | changes


@pytest.mark.parametrize("pre", PATTERNS)
def test_byte_level(tmp_path, pre):
    ours = from_gguf(metadata(tmp_path / "x.gguf", **byte_level(pre=pre)))
    assert type(ours) is BPETokenizer and ours.vocab_size == 803
    expected = BPETokenizer(
        trained().vocab, trained().merges, PATTERNS[pre], trained().added_tokens.tokens,
        ignore_merges=pre == "llama-bpe",
    )
    text = corpus()[:5000] + HARD + "<|endoftext|>"
    for allowed in ((), "all"):
        assert ours.encode(text, allowed) == expected.encode(text, allowed)
    ids = ours.encode("<tool>x<unused>")
    assert ids[0] == 800 and 801 not in ids and ours.decode([*ids, 801]) == "<tool>x<unused><unused>"
    assert (ours.encode(" definitely") == [802]) == (pre == "llama-bpe")
    assert (ours.bos_token_id, ours.eos_token_id) == (799, 799)
    assert ours.encode("x", add_special_tokens=True) == [799] * (pre == "llama-bpe") + ours.encode("x")


def test_the_default_words(tmp_path):
    keys = byte_level(add_bos_token=True, add_eos_token=True)
    del keys["pre"]
    ours = from_gguf(metadata(tmp_path / "x.gguf", **keys))
    assert ours.pre_tokenizer.patterns == PATTERNS["default"]
    assert ours.encode("x", add_special_tokens=True) == [799, *ours.encode("x"), 799]


@pytest.fixture(scope="module")
def llamas(tmp_path_factory):
    """Our tokenizer of a file, and Hugging Face's of the merges that its scores mean."""
    path = tmp_path_factory.mktemp("gguf")
    keys = llama()
    scores = {t: s for t, s, kind in zip(keys["tokens"], keys["scores"], keys["token_type"], strict=True)
              if kind == Type.NORMAL}
    vocab = sentencepiece()[0]
    merges = [pair for pair in generate_merges(vocab, scores) if set(pair) <= set(scores)]
    theirs = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    theirs.add_special_tokens(["<unk>", "<s>", "</s>"])
    theirs.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    theirs.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return from_gguf(metadata(path / "x.gguf", **keys)), theirs


@given(TEXTS)
def test_scores(llamas, text):
    ours, theirs = llamas
    ids = ours.encode(text)
    assert ids == theirs.encode(text).ids and ours.decode(ids) == theirs.decode(ids)


def test_sentencepiece(llamas, tmp_path):
    ours, theirs = llamas
    text = corpus()[:9000] + "<s> a</s>b"
    assert type(ours) is SentencePieceBPE
    assert ours.encode(text, allowed_special="all") == theirs.encode(text).ids
    assert ours.encode(text, add_special_tokens=True) == [1, *ours.encode(text)]
    assert (ours.bos_token_id, ours.eos_token_id, ours.unk_token_id) == (1, 2, 0)
    keys = metadata(tmp_path / "x.gguf", **llama(add_space_prefix=False, add_bos_token=False))
    for key in ("scores", "token_type", "bos_token_id"):  # other readers may give NumPy's types
        keys[f"tokenizer.ggml.{key}"] = np.array(keys[f"tokenizer.ggml.{key}"])[()]
    bare = from_gguf(keys)
    assert bare.encode("a", add_special_tokens=True) == [bare.token_to_id("a")]
    bare.save(tmp_path / "tokenizer.json")
    assert SentencePieceBPE.load(tmp_path).encode(text) == bare.encode(text)


DAMAGED = [
    (byte_level, "model", None, "model: expected str, got None"),
    (byte_level, "model", "t5", "model: 't5' is not supported, only 'gpt2' and 'llama' are"),
    (byte_level, "pre", "deepseek", "pre: 'deepseek' is not supported, only gpt-2, smollm"),
    (byte_level, "tokens", None, "tokens: expected a list, got None"),
    (byte_level, "tokens", "abc", "tokens: expected a list, got 'abc'"),
    (byte_level, "tokens", ["a", 3], "tokens: expected values of type str, got 3"),
    (byte_level, "tokens", ["a", "b", "a"], "tokens: 'a' occurs twice"),
    (byte_level, "tokens", [], "token_type: expected 0 values, got 803"),
    (byte_level, "token_type", [1], "token_type: expected 803 values, got 1"),
    (byte_level, "token_type", ["a"] * 803, "token_type: expected values of type int, got 'a'"),
    (byte_level, "merges", None, "merges: expected a list, got None"),
    (byte_level, "merges", ["ab"], r"merges[0]: expected two tokens, got 'ab'"),
    (byte_level, "merges", ["a b c"], r"merges[0]: expected two tokens, got 'a b c'"),
    (byte_level, "merges", ["Ġ 中"], "merge 0, 'Ġ' and '中': '中' is not in the vocabulary"),
    (byte_level, "bos_token_id", 803, "bos_token_id: 803 is outside the vocabulary of 803 tokens"),
    (byte_level, "eos_token_id", "x", "eos_token_id: expected int, got 'x'"),
    (byte_level, "add_bos_token", 1, "add_bos_token: expected bool, got 1"),
    (llama, "scores", None, "scores: expected a list, got None"),
    (llama, "scores", [0.0], "scores: expected 600 values, got 1"),
    (llama, "scores", [float("nan")] * 600, "scores: expected values of type float, got nan"),
]


@pytest.mark.parametrize(("make", "key", "value", "message"), DAMAGED, ids=[row[-1] for row in DAMAGED])
def test_damaged_metadata(make, key, value, message):
    keys = {f"tokenizer.ggml.{name}": found for name, found in make(**{key: value}).items()}
    where = "" if message.startswith("merge 0") else "tokenizer.ggml."
    with pytest.raises(ValueError, match=re.escape(f"x.gguf: {where}{message}")):
        from_gguf(keys, "x.gguf")


def test_a_first_token_that_is_missing():
    keys = {f"tokenizer.ggml.{name}": value for name, value in byte_level(add_bos_token=True).items()}
    del keys["tokenizer.ggml.bos_token_id"]
    with pytest.raises(ValueError, match="add_bos_token is true without tokenizer.ggml.bos_token_id"):
        from_gguf(keys)
