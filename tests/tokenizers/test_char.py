import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mytorch.tokenizers import CharTokenizer
from tests.every import every

no_surrogates = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(no_surrogates)
def test_decode_undoes_encode(text):
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert ids == [sorted(set(text)).index(character) for character in text]
    assert tokenizer.decode(ids) == tokenizer.decode(np.array(ids)) == text
    assert tokenizer.vocab_size == len(set(text))


@given(no_surrogates)
def test_load_undoes_save(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    CharTokenizer.from_text(text).save(path)
    loaded = CharTokenizer.load(path)
    assert loaded.characters == "".join(sorted(set(text)))
    assert loaded.encode(text) == CharTokenizer.from_text(text).encode(text)
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]


def test_types():
    tokenizer = CharTokenizer.from_text("hello")
    ids = tokenizer.encode("hello")
    array = tokenizer.encode_to_numpy("hello")
    assert ids == [1, 0, 2, 2, 3] and every(type(i) is int for i in ids)
    assert array.dtype == np.uint16 and array.tolist() == ids
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    assert tokenizer.decode(i for i in ids) == "hello"
    assert repr(tokenizer) == "CharTokenizer(vocab_size=4)"


def test_all_65536_ids_fit():
    characters = "".join(map(chr, range(0x10000, 0x20000)))
    tokenizer = CharTokenizer(characters)
    assert tokenizer.encode(characters[-1]) == [65535]
    assert tokenizer.decode([0, 65535]) == characters[0] + characters[-1]
    with pytest.raises(ValueError, match="65,537 distinct characters, but uint16 ids allow 65,536"):
        CharTokenizer(characters + "a")


@pytest.mark.parametrize("text", ["hexlo", "he\U0001f600lo", "he\udc80lo", "he\0lo"])
def test_unknown_character(text):
    with pytest.raises(ValueError, match="position 2") as error:
        CharTokenizer.from_text("hello").encode(text)
    assert f"unknown character {text[2]!r}" in str(error.value)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([0, 4], ValueError, r"id 4 at position 1 is outside 0\.\.3"),
        ([-1], ValueError, r"id -1 at position 0 is outside 0\.\.3"),
        (np.array([3, 2, 70000]), ValueError, "id 70000 at position 2"),
        ([0.0, 1.0], TypeError, "expects integers, got float64"),
        (np.zeros((1, 2), int), ValueError, r"got an array of shape \(1, 2\)"),
        (np.array(1), ValueError, r"got an array of shape \(\)"),
        ([10**30], TypeError, "expects integers"),
    ],
)
def test_wrong_ids(ids, error, message):
    with pytest.raises(error, match=message):
        CharTokenizer.from_text("hello").decode(ids)


@pytest.mark.parametrize(
    ("characters", "message"),
    [("", "at least one character"), ("aba", "got 'a' twice"), ("a\ud800", "surrogates not allowed")],
)
def test_wrong_characters(characters, message):
    with pytest.raises(ValueError, match=message):
        CharTokenizer(characters)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected a JSON object, got list"),
        ("{}", "expected a tokenizer of type 'char', got None"),
        (json.dumps({"type": "gpt2"}), "expected a tokenizer of type 'char', got 'gpt2'"),
        (json.dumps({"type": "char"}), "'characters' must be a string"),
        (json.dumps({"type": "char", "characters": ["a"]}), "'characters' must be a string"),
        (json.dumps({"type": "char", "characters": "aa"}), "must be unique, got 'a' twice"),
        (b"\xff", "can't decode byte 0xff"),
        ('{"type": "char", "characters": "ab", "characters": "abc"}', "the key 'characters' occurs twice"),
        ('{"type": "char", "characters": NaN}', "NaN is no number"),
    ],
)
def test_malformed_file(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as error:
        CharTokenizer.load(path)
    assert str(path) in str(error.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        CharTokenizer.load(tmp_path / "tokenizer.json")


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    CharTokenizer("ab").save(path)

    def disk_full(self, text, **_):
        with open(self, "w") as file:
            file.write(text[:3])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", disk_full)
    with pytest.raises(OSError, match="no space left"):
        CharTokenizer("abc").save(path)
    assert CharTokenizer.load(path).characters == "ab"
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
