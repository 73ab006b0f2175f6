"""Byte-level BPE, beside Hugging Face's `tokenizers` with the same vocabulary and merges."""

import pickle
import random
from contextlib import suppress

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import trainers

from mytorch.tokenizers import BPETokenizer
from mytorch.tokenizers.added_tokens import AddedToken
from mytorch.tokenizers.bpe import CHAR_OF_BYTE
from mytorch.tokenizers.merges import learn_merges, merge
from mytorch.tokenizers.pre_tokenizer import PATTERNS
from tests.tokenizers.texts import HARD, TEXTS, corpus, oracle, trained

ORACLE = oracle(trained())


@given(TEXTS)
def test_ids_of_random_text(text):
    ids = trained().encode(text)
    assert ids == ORACLE.encode(text).ids
    assert trained().decode(ids) == text and trained().decode_bytes(ids) == text.encode()


def test_ids_of_a_long_text():
    text = corpus() + HARD
    ids = trained().encode(text)
    assert ids == ORACLE.encode(text).ids and trained().decode(ids) == text
    array = trained().encode_to_numpy(text)
    assert array.dtype == np.uint16 and array.tolist() == ids and trained().decode(array) == text


@given(st.binary(max_size=60))
def test_any_bytes_round_trip(raw):
    ids = trained().encode_bytes(raw)
    assert trained().decode_bytes(ids) == raw
    with suppress(UnicodeDecodeError):
        assert ids == trained().encode(raw.decode())


@given(st.lists(st.integers(0, trained().vocab_size - 1), max_size=30))
def test_any_ids_decode(ids):
    """A token may end in the middle of a character."""
    assert trained().decode(ids) == ORACLE.decode(ids, skip_special_tokens=False)
    assert trained().decode(ids, skip_special_tokens=True) == ORACLE.decode(ids)


@pytest.mark.parametrize("name", PATTERNS)
def test_training_learns_the_oracles_merges(name):
    """To the last, and ties are broken in the same way."""
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = oracle(BPETokenizer.train("", 256, PATTERNS[name], ())).pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    theirs.train_from_iterator([corpus()], trainer)
    ours = BPETokenizer.train(iter([corpus()]), 900, PATTERNS[name], special_tokens=())
    assert ours.vocab == theirs.get_vocab() and ours.vocab_size == 900


def test_training_by_counting_again():
    """The definition: count all pairs, merge the most frequent, of those the smallest."""
    chance = random.Random(0)
    words = {tuple(chance.choices(range(4), k=chance.randint(1, 9))): chance.randint(1, 5) for _ in range(60)}
    merges = learn_merges(words, 30, first_id=4)
    for new_id, pair in enumerate(merges, 4):
        counts = {}
        for word, count in words.items():
            for found in zip(word, word[1:], strict=False):
                counts[found] = counts.get(found, 0) + count
        assert pair == min(counts, key=lambda p: (-counts[p], p))
        words = {tuple(merge(list(word), {pair: (0, new_id)})): count for word, count in words.items()}


def test_merging_by_the_definition():
    chance = random.Random(1)
    for _ in range(300):
        table, size = {}, 3
        while size < 12:
            table[chance.randrange(size), chance.randrange(size)] = (chance.randrange(9), size)
            size += 1
        ids = chance.choices(range(3), k=chance.randint(0, 20))
        expected = list(ids)
        while True:
            found = [
                (table[p][0], i)
                for i, p in enumerate(zip(expected, expected[1:], strict=False))
                if p in table
            ]
            if not found:
                break
            i = min(found)[1]
            expected[i : i + 2] = [table[expected[i], expected[i + 1]][1]]
        assert merge(ids, table) == expected


def test_special_tokens_only_where_they_are_allowed():
    tokenizer = BPETokenizer.train(corpus()[:3000], 300, special_tokens=("<|endoftext|>", "<|end|>", "<|e"))
    end, short, e = 297, 298, 299
    text = "a<|endoftext|>b<|end|><|e"
    plain = tokenizer.encode(text)
    assert max(plain) < end and tokenizer.decode(plain) == text
    ids = tokenizer.encode(text, allowed_special="all")
    assert [i for i in ids if i >= end] == [end, short, e] and tokenizer.decode(ids) == text
    assert ids == oracle(tokenizer).encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab"
    ids = tokenizer.encode(text, allowed_special={"<|e"})
    assert [i for i in ids if i >= end] == [e, e, e]
    with pytest.raises(ValueError, match="no special token: '<|nothing|>'"):
        tokenizer.encode(text, allowed_special={"<|nothing|>"})
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (end, None)
    assert (tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("no")) == (short, None)
    assert (tokenizer.id_to_token(e), tokenizer.id_to_token(300)) == ("<|e", None)


def variants():
    base = trained(400)
    vocab = {token: i for token, i in base.vocab.items() if token != "<|endoftext|>"}
    size = len(vocab)
    long = {"Ġdefinitely": size, **vocab}
    tags = [
        AddedToken("<a>", size + 1), AddedToken(" <b>", size + 2, special=False, lstrip=True, rstrip=True),
        AddedToken("<c>", size + 3, special=False, normalized=True),
        AddedToken("<é>", size + 4, normalized=True),
    ]
    yield "added tokens", BPETokenizer(vocab, base.merges, added_tokens=tags)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield form, BPETokenizer(vocab, base.merges, PATTERNS["qwen2"], tags, normalizer=form)
    yield "ignore_merges", BPETokenizer(long, base.merges, PATTERNS["llama-bpe"], ignore_merges=True)
    yield "merges", BPETokenizer(long, base.merges, PATTERNS["llama-bpe"])
    yield "smollm", BPETokenizer(vocab, base.merges, PATTERNS["smollm"], tags[:1], prefix_ids=[size + 1])


VARIANTS = {name: (tokenizer, oracle(tokenizer)) for name, tokenizer in variants()}
PARTS = [
    "<a>",
    "<b>",
    "<c>",
    "<é>",
    "<e\u0301>",
    " ",
    "\n\u3000",
    "a",
    "é",
    "e\u0301",
    "ﬁ",
    " definitely",
    "12",
]


@given(st.lists(st.sampled_from(PARTS)).map("".join))
def test_the_options_are_those_of_the_oracle(text):
    for name, (ours, theirs) in VARIANTS.items():
        ids = ours.encode(text, allowed_special="all", add_special_tokens=True)
        assert ids == theirs.encode(text).ids, name


def test_a_word_that_is_a_token():
    whole, merged = VARIANTS["ignore_merges"][0], VARIANTS["merges"][0]
    assert whole.encode(" definitely") == [399] and len(merged.encode(" definitely")) > 1


def test_a_saved_tokenizer_is_the_same(tmp_path):
    path = tmp_path / "tokenizer.json"
    for tokenizer in [trained(), *(ours for ours, _ in VARIANTS.values())]:
        tokenizer.save(path)
        for loaded in (BPETokenizer.load(path), pickle.loads(pickle.dumps(tokenizer))):
            assert type(loaded) is BPETokenizer and loaded.to_json() == tokenizer.to_json()
            assert loaded.encode(HARD) == tokenizer.encode(HARD)
        assert tokenizers.Tokenizer.from_file(str(path)).get_vocab() == tokenizer.vocab
    assert BPETokenizer.load(path).eos_token_id is None and repr(tokenizer) == "BPETokenizer(vocab_size=401)"


def test_words_are_cached_within_limits(monkeypatch):
    monkeypatch.setattr("mytorch.tokenizers.subword.MAX_CACHED", 3)
    tokenizer = BPETokenizer.train("", 256, special_tokens=())
    assert tokenizer.decode(tokenizer.encode("a b c d e f" + "g" * 100)) == "a b c d e f" + "g" * 100
    assert 0 < len(tokenizer._cache) <= 3


def test_long_words_take_no_quadratic_time():
    """200,000 characters without white space: quadratic time would be hours."""
    text = "ab" * 100_000
    assert trained().encode(text) == ORACLE.encode(text).ids


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trained().encode("a\ud800"), r"the surrogate '\\ud800' at position 1"),
        (lambda: trained().decode([800]), "id 800 at position 0 is outside 0..799"),
        (lambda: trained().decode([[1]]), "got an array of shape"),
        (lambda: BPETokenizer.train("abc", 0), "vocab_size must be at least 257"),
        (lambda: BPETokenizer.train("abc", 256), "at least 257, for the 256 bytes and 1 special"),
        (lambda: BPETokenizer.train("abc", 260), "only 2 merges, but 3 were requested"),
        (lambda: BPETokenizer.train("a\udc80", 257), "surrogate"),
        (lambda: BPETokenizer({}, []), "the vocabulary is empty"),
        (lambda: BPETokenizer({"a": 0, "b": 0}, []), "two tokens have the id 0: 'a'"),
        (lambda: BPETokenizer({"a": 0}, [("a", "b")]), "merge 0, 'a' and 'b': 'b' is not in the voc"),
        (lambda: BPETokenizer({"a": 0}, [("a", "a")]), "'aa' is not in the vocabulary"),
        (lambda: BPETokenizer({"a": 0}, [], normalizer="nfc"), "normalizer must be None or one of"),
        (lambda: BPETokenizer({"a": 0}, []).encode("b"), "byte 0x62 of 'b' is not in the vocabulary"),
        (lambda: BPETokenizer({"a": 0, "b": 2}, []).decode([1]), "id 1 is not in the vocabulary"),
        (lambda: BPETokenizer({"a": 0}, [], added_tokens=[AddedToken("a", 1)]), "'a' has the id 1, and 0 in"),
        (lambda: VARIANTS["NFC"][0].encode_bytes(b"a"), "can't be encoded with the normalizer NFC"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_ids_beyond_uint16():
    tokenizer = BPETokenizer({CHAR_OF_BYTE[b]: b for b in range(256)} | {"x" * 9: 70_000}, [])
    assert tokenizer.vocab_size == 70_001 and tokenizer.encode_to_numpy("a").dtype == np.uint32
    for last, dtype in ((2**16 - 1, np.uint16), (2**16, np.uint32)):
        tokenizer = BPETokenizer({CHAR_OF_BYTE[b]: b for b in range(256)} | {"xx": last}, [("x", "x")])
        array = tokenizer.encode_to_numpy("xx")
        assert array.dtype == dtype and array.tolist() == [last]


def test_a_word_that_is_a_special_token_stays_text():
    """Where a whole text is a word, and words that are tokens are these tokens."""
    made = BPETokenizer.train("hello hello", 260, special_tokens=["<|im_end|>"])
    added = made.added_tokens.tokens
    tokenizer = BPETokenizer(made.vocab, made.merges, [], added, ignore_merges=True)
    end = made.token_to_id("<|im_end|>")
    assert end not in tokenizer.encode("<|im_end|>") and tokenizer.encode("<|im_end|>", "all") == [end]
