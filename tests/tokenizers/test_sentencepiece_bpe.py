"""SentencePiece's BPE, beside Hugging Face's `tokenizers` with the same vocabulary and merges."""

import json
from functools import cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers, trainers

from mytorch.tokenizers import SentencePieceBPE
from mytorch.tokenizers.added_tokens import AddedToken
from mytorch.tokenizers.merges import merge_table
from mytorch.tokenizers.sentencepiece_bpe import PREFIXES, score_table
from tests.tokenizers.texts import TEXTS, corpus, oracle

SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


@cache
def trained():
    """A vocabulary as Llama 2 has it: special tokens, bytes, merged tokens; and its merges."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=[*SPECIAL, *BYTES], limit_alphabet=80, show_progress=False
    )
    model.train_from_iterator(corpus()[:40_000].splitlines(), trainer)
    merges = json.loads(model.to_str())["model"]["merges"]
    return model.get_vocab(), [tuple(pair) for pair in merges]


def build(prefix="every", split_words=False, **options):
    vocab, merges = trained()
    added = [AddedToken(token, vocab[token]) for token in SPECIAL]
    return SentencePieceBPE(
        vocab, merge_table(vocab, merges), added, prefix=prefix, split_words=split_words,
        unk_token_id=0, prefix_ids=[1], **options,
    )


VARIANTS = {
    (prefix, split): (tokenizer := build(prefix, split), oracle(tokenizer))
    for prefix in PREFIXES
    for split in (False, True)
    if (prefix, split) != ("every", True)
}
SPACED = st.lists(st.sampled_from(["<s>", "</s>", " ", "▁", "a", "def", " the", "\n", "é", "🙂"])).map(
    "".join
)


@given(st.one_of(TEXTS, SPACED))
def test_ids_of_random_text(text):
    for case, (ours, theirs) in VARIANTS.items():
        ids = ours.encode(text, allowed_special="all", add_special_tokens=True)
        assert ids == theirs.encode(text).ids, case
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False), case
        if ours.prefix in ("every", "never"):  # the others put no space before one, and yet remove it
            assert ours.decode(ours.encode(text)) == text.replace("▁", " "), case


def test_ids_of_a_long_text():
    text = corpus()[:60_000]
    for ours, theirs in VARIANTS.values():
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


@given(st.lists(st.one_of(st.integers(3, 258), st.integers(0, 599)), max_size=30))
def test_any_ids_decode(ids):
    for ours, theirs in VARIANTS.values():
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids)
        assert ours.decode_bytes(ids) == b"".join(ours.decode_bytes([i]) for i in ids)


def test_tokens_across_words():
    """With a token such as `o▁w` words can't be encoded alone."""
    vocab = {token: i for i, token in enumerate(["<unk>", "▁", "o", "w", "▁w", "o▁w", "o▁"])}
    merges = [("o", "▁"), ("o▁", "w"), ("▁", "w")]
    ours = SentencePieceBPE(vocab, merge_table(vocab, merges), unk_token_id=0)
    assert ours.encode("o wow") == oracle(ours).encode("o wow").ids == [1, 5, 2, 3]


@pytest.mark.parametrize("fuse", [False, True])
def test_unknown_characters_without_bytes(fuse):
    vocab = {"<unk>": 0, "▁": 1, "a": 2}
    ours = SentencePieceBPE(vocab, {}, unk_token_id=0, fuse_unk=fuse)
    assert ours.encode("xya zé") == oracle(ours).encode("xya zé").ids
    assert ours.encode("xy") == ([1, 0] if fuse else [1, 0, 0])
    with pytest.raises(ValueError, match="neither the character 'x' nor its bytes are in the vocabulary"):
        SentencePieceBPE(vocab, {}).encode("ax")


@given(st.text("ab c", max_size=30))
def test_scores_decide_the_merges(text):
    """The definition: of all neighbours that are a token together, the one of the highest score is merged."""
    tokens = ["▁", "a", "b", "c", "ab", "bc", "▁a", "abc", "▁ab", "cc", "ca", "aa", "▁▁", "b▁", "bcc"]
    scores = dict(zip(tokens, [0, 0, 0, 0, -3, -2, -9, -1, -5, -4, -4, -6, -7, -8, -2.5], strict=True))
    vocab = {token: i for i, token in enumerate(tokens)}
    symbols = list(("▁" + text.replace(" ", "▁")) if text else "")
    while True:
        pairs = [a + b for a, b in zip(symbols, symbols[1:], strict=False)]
        found = [(-scores[pair], i) for i, pair in enumerate(pairs) if pair in scores]
        if not found:
            break
        i = min(found)[1]
        symbols[i : i + 2] = [pairs[i]]
    ours = SentencePieceBPE(vocab, score_table(vocab, scores))
    assert ours.encode(text) == [vocab[symbol] for symbol in symbols]


def test_a_saved_tokenizer_is_the_same(tmp_path):
    for ours, _ in VARIANTS.values():
        ours.save(tmp_path / "tokenizer.json")
        loaded = SentencePieceBPE.load(tmp_path / "tokenizer.json")
        assert loaded.to_json() == ours.to_json() and loaded.encode(corpus()[:999]) == ours.encode(
            corpus()[:999]
        )
        assert (loaded.bos_token_id, loaded.eos_token_id, loaded.vocab_size) == (1, 2, 600)


def test_wrong_input():
    with pytest.raises(ValueError, match="prefix must be one of .*, got 'first'"):
        build("first")
    with pytest.raises(ValueError, match="split_words needs another prefix than 'every'"):
        build("every", True)
