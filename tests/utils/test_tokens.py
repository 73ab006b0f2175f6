"""Token files as train_gpt2.py reads them."""

import json

import numpy as np
import pytest

from mytorch.utils.data import DataLoader
from mytorch.utils.tokens import TokenWindows, load_tokens, size_of_vocabulary


def test_tokens_are_those_of_the_file(tmp_path):
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "val.bin")
    tokens = load_tokens(tmp_path, "val", 299)
    assert tokens.dtype == np.uint16 and tokens.tolist() == list(range(300))
    with pytest.raises(ValueError, match="val.bin has 300 tokens, a context of 300 needs at least 301"):
        load_tokens(tmp_path, "val", 300)
    with pytest.raises(FileNotFoundError, match="train.bin does not exist; create it with: python prep"):
        load_tokens(tmp_path, "train", 1)
    (tmp_path / "train.bin").touch()
    with pytest.raises(ValueError, match="train.bin has 0 tokens"):
        load_tokens(tmp_path, "train", 1)


def test_windows_are_the_tokens_and_the_next_one(tmp_path):
    np.arange(10, 20, dtype=np.uint16).tofile(tmp_path / "val.bin")
    windows = TokenWindows(tmp_path, "val", 3)
    assert len(windows) == 7 and [int(w[0]) for w in (windows[0], windows[6])] == [10, 16]
    (batch,) = DataLoader(windows, batch_sampler=[[6, 0]])
    assert batch.dtype == "int64" and batch.tolist() == [[16, 17, 18, 19], [10, 11, 12, 13]]
    for start in (-1, 7):
        with pytest.raises(IndexError, match=f"window {start} is out of range for 7 windows"):
            windows[start]


def test_the_size_of_the_vocabulary(tmp_path):
    assert size_of_vocabulary(tmp_path) == 50304
    for kind, expected in (({"type": "gpt2"}, 50304), ({"type": "char", "characters": "abc"}, 3)):
        (tmp_path / "tokenizer.json").write_text(json.dumps(kind))
        assert size_of_vocabulary(tmp_path) == expected
