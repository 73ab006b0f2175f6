"""Token files as train_gpt2.py reads them."""

import json

import numpy as np
import pytest

from mytorch.utils.tokens import load_tokens, size_of_vocabulary


def test_tokens_are_those_of_the_file(tmp_path):
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "val.bin")
    tokens = load_tokens(tmp_path, "val", 299)
    assert tokens.dtype == np.uint16 and tokens.tolist() == list(range(300))
    with pytest.raises(ValueError, match="val.bin has 300 tokens, too few for a context of 300"):
        load_tokens(tmp_path, "val", 300)
    with pytest.raises(FileNotFoundError, match="train.bin is missing; make it with: python prepare_data/"):
        load_tokens(tmp_path, "train", 1)
    (tmp_path / "train.bin").touch()
    with pytest.raises(ValueError, match="train.bin has 0 tokens"):
        load_tokens(tmp_path, "train", 1)


def test_the_size_of_the_vocabulary(tmp_path):
    assert size_of_vocabulary(tmp_path) == 50304
    for kind, expected in (({"type": "gpt2"}, 50304), ({"type": "char", "characters": "abc"}, 3)):
        (tmp_path / "tokenizer.json").write_text(json.dumps(kind))
        assert size_of_vocabulary(tmp_path) == expected
