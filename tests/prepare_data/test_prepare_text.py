import json
import os
from pydoc_data.topics import topics

import numpy as np
import pytest

from mytorch.tokenizers import BPETokenizer, CharTokenizer, load_tokenizer
from mytorch.utils.tokens import size_of_vocabulary
from prepare_data import common, prepare_text
from tests.every import every


def prepared(folder):
    """The train and the val text that a data folder holds."""
    assert sorted(path.name for path in folder.iterdir()) == ["tokenizer.json", "train.bin", "val.bin"]
    tokenizer = CharTokenizer.load(folder / "tokenizer.json")
    return tuple(
        tokenizer.decode(np.fromfile(folder / f"{split}.bin", np.uint16)) for split in ("train", "val")
    )


def run(out, *arguments):
    return prepare_text.main([*map(str, arguments), "--path_to_save", str(out)])


def test_file(tmp_path):
    text = "Αβγ\r\nδ 🙂 " * 30
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert run(tmp_path / "out", tmp_path / "a.txt") == 0
    split = int(0.9 * len(text))
    assert prepared(tmp_path / "out") == (text[:split], text[split:])


@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.01])
def test_val_fraction(tmp_path, fraction):
    (tmp_path / "a.txt").write_text("abcd" * 50)
    assert run(tmp_path / "out", tmp_path / "a.txt", "--val_fraction", fraction) == 0
    train, val = prepared(tmp_path / "out")
    assert (len(train), len(val)) == (200 - 200 * fraction, 200 * fraction)


def test_bpe(tmp_path, capsys):
    text = "".join(topics[name] for name in sorted(topics)[:9])
    (tmp_path / "a.txt").write_text(text)
    assert run(tmp_path / "out", tmp_path / "a.txt", "--tokenizer", "bpe", "--vocab_size", 400) == 0
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.vocab == BPETokenizer.train(text[: int(0.9 * len(text))], 400).vocab
    train, val = (np.fromfile(tmp_path / "out" / f"{split}.bin", np.uint16) for split in ("train", "val"))
    assert tokenizer.decode(train) + tokenizer.decode(val) == text and len(train) < 0.6 * len(text)
    assert size_of_vocabulary(tmp_path / "out") == 400
    assert "tokenizer.json 400 tokens" in capsys.readouterr().out


def test_gpt2s_tokens(tmp_path, monkeypatch, capsys):
    """Of a small vocabulary that is where GPT-2's would be."""
    small = BPETokenizer.train("low lower lowest", 262)
    cache = tmp_path / "mytorch" / "gpt2"
    cache.mkdir(parents=True)
    (cache / "encoder.json").write_text(json.dumps(small.vocab))
    (cache / "vocab.bpe").write_text("".join(f"{a} {b}\n" for a, b in small.merges))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("lower lows " * 9)
    assert run(tmp_path / "out", tmp_path / "a.txt", "--tokenizer", "gpt2", "--val_fraction", 0.5) == 0
    train = np.fromfile(tmp_path / "out" / "train.bin", np.uint16)
    assert train.tolist() == small.encode("lower lows " * 4 + "lower")
    assert json.loads((tmp_path / "out/tokenizer.json").read_text()) == {"type": "gpt2", "vocab_size": 262}
    assert load_tokenizer(tmp_path / "out").decode(train) == "lower lows " * 4 + "lower"
    (cache / "vocab.bpe").write_text("x")
    assert run(tmp_path / "out2", tmp_path / "a.txt", "--tokenizer", "gpt2") == 1
    assert "vocab.bpe, line 1, is damaged" in capsys.readouterr().err and not (tmp_path / "out2").exists()


def test_folder_in_sorted_order(tmp_path, capsys):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    for name, text in {
        "b.txt": "second",
        "a.txt": "first\n",
        "sub/c.txt": "third",
        "note.md": "# note",
    }.items():
        (folder / name).write_text(text)
    assert run(tmp_path / "out", folder) == 0
    assert "".join(prepared(tmp_path / "out")) == "first\nsecond\nthird"
    assert "text from 3 files in" in capsys.readouterr().out
    assert run(tmp_path / "out", folder, "--pattern", "*.md") == 0
    assert "".join(prepared(tmp_path / "out")) == "# note"


def test_what_is_no_file(tmp_path, capsys):
    os.mkfifo(tmp_path / "a.txt")
    assert run(tmp_path / "out", tmp_path / "a.txt") == 1
    assert "a.txt: it is a FIFO" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_crash_leaves_whole_files(tmp_path, monkeypatch):
    """All are on the disk before the first is renamed."""
    calls = []
    monkeypatch.setattr(common, "flush", lambda path: calls.append(("flush", path.name)))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(("replace", b.name)), replace(a, b)))
    (tmp_path / "a.txt").write_text("abcd" * 50)
    assert run(tmp_path / "out", tmp_path / "a.txt") == 0
    names = ["train.bin", "val.bin", "tokenizer.json"]
    assert sorted(calls[-6:-3]) == sorted(("flush", name) for name in names)
    assert sorted(calls[-3:]) == sorted(("replace", name) for name in names)


def test_pydocs(tmp_path):
    assert run(tmp_path / "out", "--pydocs") == 0
    text = "".join(prepared(tmp_path / "out"))
    assert len(text) == sum(map(len, topics.values())) + len(topics) - 1
    assert every(topic in text for topic in topics.values())


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        ({}, ["missing.txt"], "no such file"),
        ({"in/readme.md": b"a"}, ["in"], "no file in"),
        ({"in/a.txt": b"abc", "in/b.txt": b""}, ["in"], "b.txt is empty"),
        (
            {"in/a.txt": b"abc", "in/b.txt": b"\xff\xfe"},
            ["in"],
            "b.txt is not UTF-8: byte 0xff at position 0",
        ),
        ({"in/a.txt": b"abc"}, ["in", "--pattern", ""], "pattern ''"),
        ({"in/a.txt": b"abc"}, ["in", "--pattern", "/etc/*"], "--pattern '/etc/*'"),
        ({"a.txt": b"abc" * 9}, ["a.txt", "--tokenizer", "bpe"], "the text has only 5 merges"),
        ({"a.txt": b"abc" * 9}, ["a.txt", "--tokenizer", "bpe", "--vocab_size", "9"], "must be at least 257"),
        ({"a.txt": b"abc"}, ["a.txt", "--tokenizer", "bpe", "--vocab_size", "65537"], "which allows 65,536"),
        ({"a.txt": b"abc"}, ["a.txt", "--val_fraction", "1e-18"], "the val split would be empty"),
        ({"a.txt": b"abc"}, ["a.txt", "--val_fraction", "0.9"], "the train split would be empty"),
    ],
)
def test_wrong_input_leaves_no_output(tmp_path, monkeypatch, capsys, files, arguments, message):
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert run(tmp_path / "out", *arguments) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass either a path or --pydocs"),
        (["a.txt", "--pydocs"], "pass either a path or --pydocs"),
        (["a.txt", "--val_fraction", "0"], "0 is not between 0 and 1"),
        (["a.txt", "--val_fraction", "1"], "1 is not between 0 and 1"),
        (["a.txt", "--val_fraction", "nan"], "nan is not between 0 and 1"),
        (["a.txt", "--val_fraction", "x"], "invalid fraction value: 'x'"),
        (["a.txt", "--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_arguments(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        run(tmp_path / "out", *arguments)
    assert exit_.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
