"""Words, beside those of Hugging Face's `tokenizers`, whose regular expressions know Unicode's classes."""

import unicodedata

import pytest
from hypothesis import given
from tokenizers import Regex, pre_tokenizers

from mytorch.tokenizers.pre_tokenizer import GPT2_PATTERN, PATTERNS, WHITE_SPACE, PreTokenizer
from tests.tokenizers.texts import HARD, TEXTS, corpus


def oracle(patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])


ORACLES = {name: (PreTokenizer(patterns), oracle(patterns)) for name, patterns in PATTERNS.items()}


def assert_same(ours, theirs, text):
    words = ours.split(text)
    assert words == [word for word, _ in theirs.pre_tokenize_str(text)], repr(text)
    assert "".join(words) == text


@given(TEXTS)
def test_words_of_random_text(text):
    for ours, theirs in ORACLES.values():
        assert_same(ours, theirs, text)


@pytest.mark.parametrize("name", PATTERNS)
def test_words_of_a_long_text(name):
    assert_same(*ORACLES[name], corpus()[:20_000] + "".join(a + b for a in HARD for b in HARD))


@pytest.mark.parametrize("pattern", [r"\p{L}+|\p{N}+|\p{P}+|\s+", r"[^\p{L}\p{N}\p{P}\s]+", r"\S+"])
def test_classes_of_all_characters(pattern):
    """Of all that the running Python knows, in their order: where a class ends, a word does."""
    known = "".join(c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co"))
    assert_same(PreTokenizer([pattern]), oracle([pattern]), known)


def test_white_space_is_unicodes():
    found = {c for c in map(chr, range(0x110000)) if c.isspace()}
    assert set(WHITE_SPACE) == found - set("\x1c\x1d\x1e\x1f") and len(set(WHITE_SPACE)) == len(WHITE_SPACE)


def test_gpt2s_pattern_is_that_of_byte_level():
    theirs = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = corpus()[:5000]
    assert len(PreTokenizer([GPT2_PATTERN]).split(text)) == len(theirs.pre_tokenize_str(text))


def test_no_pattern_and_no_text():
    assert PreTokenizer([]).split("a b") == ["a b"]
    assert PreTokenizer([]).split("") == PreTokenizer(PATTERNS["default"]).split("") == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"\p{Lu}+", r"contains \\p\{Lu\}"),
        (r"[\P{L}]", r"contains \\P"),
        (r"[\S]", r"contains \\S"),
        (r"\d+", r"contains \\d"),
        ("[一-龥]", "contains characters outside ASCII"),
        ("(a", "missing \\)"),
        ("[a", "unterminated"),
    ],
)
def test_patterns_that_are_not_supported(pattern, message):
    with pytest.raises(ValueError, match=f"is not supported: .*{message}"):
        PreTokenizer([pattern])
