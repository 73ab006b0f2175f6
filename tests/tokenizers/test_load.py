"""`load_tokenizer`: the tokenizer of a folder, whatever its type."""

import json
import re

import pytest

from mytorch.tokenizers import CharTokenizer, load, load_tokenizer
from mytorch.utils.tokens import size_of_vocabulary
from tests.tokenizers.texts import trained


def test_every_type(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    CharTokenizer("abc").save(path)
    for given in (path, str(tmp_path)):
        loaded = load_tokenizer(given)
        assert type(loaded) is CharTokenizer and loaded.decode_bytes(loaded.encode("cab")) == b"cab"
    assert size_of_vocabulary(tmp_path) == 3
    trained().save(path)
    assert load_tokenizer(tmp_path).encode("a b") == trained().encode("a b")
    assert size_of_vocabulary(tmp_path) == 800
    path.write_text('{"type": "gpt2", "vocab_size": 50257}')
    monkeypatch.setattr(load, "gpt2_tokenizer", lambda: "GPT-2's")
    assert load_tokenizer(tmp_path) == "GPT-2's" and size_of_vocabulary(tmp_path) == 50304


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"), ("[]", "is damaged: expected a tokenizer of type 'char' or 'gpt2', or"),
        ('{"type": "bpe"}', "got type 'bpe'"), ('{"type": "char"}', "is not a character tokenizer"),
        ('{"model": 3}', "model: expected dict, got 3"),
    ],
)
def test_damaged_files(tmp_path, content, message):
    (tmp_path / "tokenizer.json").write_text(content)
    for call in (load_tokenizer, size_of_vocabulary):
        with pytest.raises(ValueError, match=message) as error:
            call(tmp_path)
        assert re.search(re.escape(str(tmp_path / "tokenizer.json")), str(error.value))


def test_inference_loads_any_tokenizer():
    """The interface that the scripts use."""
    for tokenizer in (CharTokenizer("abc "), trained()):
        ids = tokenizer.encode_to_numpy("a b")
        assert (
            ids.dtype == "uint16" and tokenizer.decode_bytes(ids) == tokenizer.decode(ids).encode() == b"a b"
        )
        assert max(ids) < tokenizer.vocab_size and json.dumps(tokenizer.encode("a b"))
