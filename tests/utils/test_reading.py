"""Files that may be damaged or no files, as every reader sees them."""

import json
import os
import socket

import pytest

import mytorch
from mytorch.utils import atomic_write
from mytorch.utils.reading import open_regular, parse_json, read_json, read_json_lines, read_text

BAD_JSON = {  # the text: what is said
    "{": "Expecting property name",
    "": "Expecting value",
    '{"a": 1} x': "Extra data",
    '{"a": 1, "b": {"c": 1, "c": 2}}': "the key 'c' occurs twice",
    "[" * 100_000: "it is nested too deeply",
    "[" * 201 + "]" * 201: "it is nested too deeply, the limit is 200",
    '{"a":' * 201 + "1" + "}" * 201: "it is nested too deeply, the limit is 200",
    "[NaN]": "NaN is no number in JSON",
    "[-Infinity]": "-Infinity is no number",
    "[1e999]": "the number 1e999 is too large",
    "1" * 5000: "4300",
    '["\\ud800"]': "half of a surrogate pair",
    '{"\\uDfff": 1}': "half of a surrogate pair",
}


@pytest.mark.parametrize("text", BAD_JSON, ids=lambda text: text[:20])
def test_json_within_limits(tmp_path, text):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ValueError, match=f"file.json is damaged: .*{BAD_JSON[text]}"):
        read_json(tmp_path / "file.json")


def test_json_that_is_fine(tmp_path):
    values = [1, -2.5, "ä\n🙂", None, True, {}, "a path \udcff"]
    content = {"a": values, "deep": json.loads("[" * 198 + "]" * 198)}
    (tmp_path / "file.json").write_text(json.dumps(content))
    assert read_json(tmp_path / "file.json") == content
    assert str(parse_json("[NaN, -Infinity]", allow_nan=True)) == "[nan, -inf]"
    with pytest.raises(ValueError, match="too large"):
        parse_json("1e999", allow_nan=True)


def test_text_within_limits(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="file is not UTF-8: "):
        read_text(tmp_path / "file")
    (tmp_path / "file").write_text("abc")
    assert read_text(tmp_path / "file", 3) == "abc"
    (tmp_path / "file").write_text("abcd")
    with pytest.raises(ValueError, match="file is larger than 3 bytes"):
        read_text(tmp_path / "file", 3)


def test_lines_of_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n{"a": NaN}\n{"a": ')
    (first, one), (second, nan) = read_json_lines(path)
    assert [first, second] == [b'{"a": 1}\n', b'{"a": NaN}\n'] and str([one, nan]) == "[{'a': 1}, {'a': nan}]"
    for line, message in ((b"[]", "expected a JSON object"), (b"\xff", "utf-8"), (b"{", "Expecting")):
        path.write_bytes(b'{"a": 1}\n' + line + b"\n")
        with pytest.raises(ValueError, match=f"metrics.jsonl, line 2, is damaged: .*{message}"):
            list(read_json_lines(path))


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


NO_FILES = {  # how it is made: what is said
    "FIFO": (os.mkfifo, "it is a FIFO"),
    "socket": (make_socket, "it is a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
    "folder": (os.mkdir, "it is a folder"),
    "nothing": (lambda path: None, "no such file"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "no such file"),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make, message = NO_FILES[kind]
    make(tmp_path.__class__("x"))
    for read in (open_regular, read_text, read_json, mytorch.load, lambda path: list(read_json_lines(path))):
        with pytest.raises(OSError, match=f"can't load x: {message}"):
            read("x")


def test_a_fifo_that_takes_the_place_of_a_file(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "x")
    monkeypatch.setattr(mytorch.utils.reading, "check_regular", lambda path: None)
    with open_regular(tmp_path / "x") as file:
        assert file.read() == b""


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device", "folder"])
def test_what_is_no_file_is_not_replaced(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    make, message = NO_FILES[kind]
    make(tmp_path.__class__("x"))
    with pytest.raises(OSError, match=f"can't write x: {message}"), atomic_write("x") as partial:
        partial.write_text("")
    assert os.listdir() == ["x"]
