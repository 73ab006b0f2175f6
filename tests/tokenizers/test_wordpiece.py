"""WordPiece, beside Hugging Face's `tokenizers`."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import trainers

from mytorch.tokenizers import WordPieceTokenizer
from mytorch.tokenizers.added_tokens import AddedToken
from tests.tokenizers.texts import corpus, oracle

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def trained(lowercase=True):
    model = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=SPECIAL, show_progress=False)
    model._tokenizer.train_from_iterator(corpus()[:30_000].splitlines(), trainer)
    return sorted(model.get_vocab(), key=model.get_vocab().get)


TOKENS = trained()
VARIANTS = {
    "uncased": WordPieceTokenizer.from_tokens(TOKENS),
    "cased": WordPieceTokenizer.from_tokens(trained(lowercase=False), lowercase=False),
    "as it is": WordPieceTokenizer({t: i for i, t in enumerate(TOKENS)}, (), False, False, False, False),
    "accents": WordPieceTokenizer({t: i for i, t in enumerate(TOKENS)}, strip_accents=False, max_chars=9),
}
ORACLES = {name: (ours, oracle(ours)) for name, ours in VARIANTS.items()}
# `tokenizers` classes characters as Unicode 8 does, Python as a later one: the characters of these blocks are
# the same in both.
SAME = st.one_of(
    st.characters(max_codepoint=0x52F, exclude_categories=("Cs", "Cn")),
    st.characters(min_codepoint=0x2000, max_codepoint=0x2BFF, exclude_categories=("Cs", "Cn")),
    st.characters(min_codepoint=0x3000, max_codepoint=0x4DB5, exclude_categories=("Cs", "Cn")),
    st.characters(min_codepoint=0xF900, max_codepoint=0xFFFD, exclude_categories=("Cs", "Cn")),
    st.sampled_from(
        "ΣςſİßÉé\u0301\u0308\u2000\u200b\u00ad\x00\x85中\U00020000\U0002b81f\U0002b820\ue000🙂’“—"
    ),
)
WORDS = st.lists(st.sampled_from([*"aeiost", "the", " ", "-", "É", "[SEP]", "UN", "##", "中文"])).map("".join)


@given(st.one_of(st.text(SAME, max_size=40), WORDS))
def test_ids_of_random_text(text):
    for name, (ours, theirs) in ORACLES.items():
        ids = ours.encode(text, allowed_special="all", add_special_tokens=True)
        assert ids == theirs.encode(text).ids, name


def test_ids_of_a_long_text():
    """Beside BERT's own class, too, and a `vocab.txt`."""
    text = corpus()[:30_000] + " ÄÖÜ äöü ß ﬁ 中文 🙂"
    for ours, theirs in ORACLES.values():
        ids = ours.encode(text, allowed_special="all", add_special_tokens=True)
        assert ids == theirs.encode(text).ids
    bert = tokenizers.BertWordPieceTokenizer(vocab={t: i for i, t in enumerate(TOKENS)})
    assert VARIANTS["uncased"].encode(text, add_special_tokens=True) == bert.encode(text).ids


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=20))
def test_any_ids_decode(ids):
    ours, theirs = ORACLES["uncased"]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids)
    assert ours.decode_bytes(ids) == ours.decode(ids).encode()


def test_lower_case_is_that_of_single_characters():
    ours = WordPieceTokenizer.from_tokens(["[UNK]", "σ", "ς", "##σ", "##ς"])
    assert ours.encode("ΣΣ ςς") == oracle(ours).encode("ΣΣ ςς").ids == [1, 3, 2, 4]  # no final sigma


def test_long_words_are_unknown():
    ours, theirs = ORACLES["uncased"]
    for text in ("a" * 100, "a" * 101, "a" * 10_000):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode("a" * 101) == [ours.token_to_id("[UNK]")]


def test_a_vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    assert WordPieceTokenizer.from_vocab_file(path).to_json() == VARIANTS["uncased"].to_json()
    for name, ours in VARIANTS.items():
        ours.save(tmp_path / "tokenizer.json")
        loaded = WordPieceTokenizer.load(tmp_path)
        assert loaded.to_json() == ours.to_json(), name
    assert VARIANTS["uncased"].bos_token_id == 2 and VARIANTS["uncased"].eos_token_id == 3
    for content, message in (
        ("a\nb\na\n", "the tokens must be unique"),
        ("a\nb\n", "no \\[UNK\\], the token of"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"{path} is no vocabulary of WordPiece: .*{message}"):
            WordPieceTokenizer.from_vocab_file(path)


def test_a_word_that_is_a_special_token_stays_text():
    vocab = {"[UNK]": 0, "stop": 1, "st": 2, "##op": 3}
    tokenizer = WordPieceTokenizer(vocab, [AddedToken("stop", 1)])
    assert tokenizer.encode("stop") == [2, 3] and tokenizer.encode("stop", "all") == [1]
