"""Token files as train_gpt2.py reads them."""

import json
import os
import re

import numpy as np
import pytest

from mytorch.utils import tokens
from mytorch.utils.data import DataLoader
from mytorch.utils.tokens import TokenWindows, load_tokens, size_of_vocabulary


def test_tokens_are_those_of_the_file(tmp_path):
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "val.bin")
    found = load_tokens(tmp_path, "val", 299)
    assert found.dtype == np.uint16 and found.tolist() == list(range(300))
    with pytest.raises(ValueError, match="val.bin has 300 tokens, a context of 300 needs at least 301"):
        load_tokens(tmp_path, "val", 300)
    with pytest.raises(FileNotFoundError, match="train.bin does not exist; create it with: python prep"):
        load_tokens(tmp_path, "train", 1)
    (tmp_path / "train.bin").touch()
    with pytest.raises(ValueError, match="train.bin has 0 tokens"):
        load_tokens(tmp_path, "train", 1)


def test_a_token_file_that_is_damaged(tmp_path):
    (tmp_path / "train.bin").write_bytes(bytes(601))
    with pytest.raises(ValueError, match="train.bin is damaged: 601 bytes are no whole number of uint16"):
        load_tokens(tmp_path, "train", 10)
    os.mkfifo(tmp_path / "val.bin")
    with pytest.raises(OSError, match="can't load .*val.bin: it is a FIFO"):
        TokenWindows(tmp_path, "val", 10)


@pytest.mark.parametrize("position", [0, 99, 100, 299])
def test_all_ids_are_in_the_vocabulary(tmp_path, monkeypatch, position):
    monkeypatch.setattr(tokens, "_CHUNK", 100)
    ids = np.arange(300, dtype=np.uint16) % 65
    ids.tofile(tmp_path / "train.bin")
    assert TokenWindows(tmp_path, "train", 10, 65).tokens.tolist() == ids.tolist()
    ids[position] = 65
    ids.tofile(tmp_path / "train.bin")
    message = f"train.bin: token {position} has the id 65, but the vocabulary has 65 ids; is it of another"
    with pytest.raises(ValueError, match=message):
        TokenWindows(tmp_path, "train", 10, 65)
    assert TokenWindows(tmp_path, "train", 10, 66).tokens[position] == 65


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


@pytest.mark.parametrize(
    "content", ["", "[]", "[" * 100_000, "{}", '{"type": "bpe"}', '{"type": []}', '{"type": "char"}',
    '{"type": "char", "characters": ["a"]}', '{"type": "gpt2", "type": "char"}', '{"type": NaN}'],
    ids=lambda text: text[:40],
)
def test_a_damaged_tokenizer(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "tokenizer.json"))):
        size_of_vocabulary(tmp_path)


def test_a_tokenizer_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(OSError, match="tokenizer.json: it is a FIFO"):
        size_of_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").symlink_to("nothing")
    with pytest.raises(FileNotFoundError, match="tokenizer.json: no such file"):
        size_of_vocabulary(tmp_path)
