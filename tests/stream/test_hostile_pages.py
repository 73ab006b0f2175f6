"""`mytorchrun top` and `trace` where other programs have made files that are called as pages."""

import contextlib
import os
import struct

import pytest

import mytorch
from mytorch import stream
from mytorch.cli import main
from mytorch.stream import page, publishing
from tests.every import every

from .test_page import folder, mine, running  # noqa: F401 - fixtures

NAME = f"mytorch-page-{os.getuid()}-"


def forged(number=1, **changes):
    """The bytes of a page of a process, with other numbers in it."""
    data = bytearray(page.SIZE)
    page._HEADER.pack_into(data, 0, b"mtp1", number, 0, 1, changes.get("started", 1.0), b"job")
    page._NOW.pack_into(data, page._NOW_AT, 1, changes.get("begin", 1.0), 0.0, b"product matmul")
    page._NUMBER.pack_into(data, page._DONE_AT, changes.get("done", 0))
    return bytes(data)


# The file with the last number of its name, and what is said of it.
FILES = {
    11: (lambda path: os.mkfifo(path), "it is no regular file"),
    12: (lambda path: path.write_bytes(b""), ""),  # it is being created
    13: (lambda path: path.write_bytes(b"x"), "it has 1 bytes, a page 4096"),
    14: (lambda path: sparse(path, 1 << 40), "it has 1099511627776 bytes, a page 4096"),
    15: (lambda path: path.write_bytes(forged(15, begin=float("nan"))), "it is damaged"),
    16: (lambda path: path.write_bytes(forged(16, started=float("inf"))), "it is damaged"),
    17: (lambda path: path.write_bytes(forged(17, done=2**64 - 1)), "it is damaged"),
    18: (lambda path: path.write_bytes(struct.pack("<4s", b"none") + bytes(page.SIZE - 4)), ""),
    19: (lambda path: another_users(path), "it is another user's"),
    20: (lambda path: os.symlink("/dev/zero", path), None),
    21: (lambda path: os.mkdir(path), "it is no regular file"),
}


def sparse(path, size):
    path.touch()
    os.truncate(path, size)


def another_users(path):
    path.write_bytes(forged(19))
    if os.getuid() == 0:  # else it is only a forged one
        os.chown(path, 12345, 12345)


@pytest.fixture(params=["names", "/proc"])
def hostile(request, folder, monkeypatch):  # noqa: F811
    """What must be said of pages that have names, as without /proc, or that processes have opened."""
    descriptors, said = [], []
    for number, (make, what) in FILES.items():
        path = folder / f"{NAME}{number}"
        make(path)
        if what is None:
            what = "it is another user's" if os.getuid() else "it is no regular file"
        if what == "it is another user's" and os.getuid() and number == 19:
            what = ""
        if request.param == "/proc":
            with contextlib.suppress(IsADirectoryError):
                descriptors.append(os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_NONBLOCK))
            said += [what] if what and number != 20 else []
        else:
            said += [what] if what else []
    (folder / f"{NAME}odd\x1b[2J").touch()
    if request.param == "names":
        monkeypatch.setattr(page, "_PROCESSES", folder / "none")
        monkeypatch.setattr(page, "_is_alive", lambda number: True)
    yield said
    for descriptor in descriptors:
        os.close(descriptor)


def test_each_costs_a_line(hostile, capsys):
    assert stream.publish()
    mytorch.ones(2).exp()
    refused = []
    reading = [r for r in page.read_pages(refused=refused) if r.pid == os.getpid()][0]
    assert reading.operation == "exp"
    assert sorted(line.rpartition(": it")[2].split(":")[0] for line in refused) == sorted(
        what.removeprefix("it").split(":")[0] for what in hostile
    )
    assert main(["top", "--once", "--interval", "0.01", "--pid", str(os.getpid())]) == 0
    assert f"pid {os.getpid()}" in capsys.readouterr().out


def test_top_names_some(folder, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(page, "_PROCESSES", folder / "none")
    for number in range(9):
        os.mkfifo(folder / f"{NAME}{number}")
    assert main(["top", "--once", "--interval", "0.01"]) == main(["trace", "--dir", str(folder)]) == 1
    lines = capsys.readouterr().err.splitlines()
    shown = [line for line in lines if line.startswith("left out: ")]
    assert len(shown) == 12 and shown[5] == "left out: 4 more" and str(folder / NAME) in shown[0]


def test_a_page_that_takes_the_place_of_one_that_was_read_is_not_written_to(folder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(page, "_PROCESSES", folder / "none")
    monkeypatch.setattr(page, "_is_alive", lambda number: True)
    path = folder / f"{NAME}11"
    path.write_bytes(forged(11))
    (reading,) = page.read_pages()
    assert page.ask_for_trace(reading, 1.0, 0, "x.log") == 1
    other = forged(11, started=2.0)
    path.write_bytes(other)
    assert page.ask_for_trace(reading, 1.0, 0, "x.log") == 0
    page.withdraw_request(reading, 5)
    assert path.read_bytes() == other
    path.unlink()
    os.mkfifo(path)
    assert page.ask_for_trace(reading, 1.0, 0, "x.log") == 0
    page.withdraw_request(reading, 5)


def test_another_users_file_keeps_no_process_from_having_a_page(folder):  # noqa: F811
    (folder / f"{NAME}{os.getpid()}").mkdir()
    assert stream.publish() and mine().pid == os.getpid()


def test_no_text_commands_the_terminal(monkeypatch, capsys, folder):  # noqa: F811
    monkeypatch.setenv("MYTORCH_RUN_FOLDER", "/x/job\x1b[2J\n\u202e")
    assert stream.publish()
    with stream.record():
        pass

    def odd(x):
        return x, None

    odd.__name__ = "odd\x1b]0;title\x07\r"
    mytorch.core.op.op(odd)(mytorch.ones(2))
    assert main(["top", "--once", "--interval", "0.01"]) == 0
    out = capsys.readouterr().out
    assert "job?[2J??" in out and "odd?]0;title??" in out and every(map(str.isprintable, out.splitlines()))


def test_a_trace_is_not_written_through_a_link(tmp_path, folder):  # noqa: F811
    """Which another user has put where the log will be."""
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "trace.log").symlink_to(target)
    stream.publish()
    assert page.ask_for_trace(mine(), 60.0, 1, str(tmp_path / "trace.log")) == 1
    with pytest.warns(UserWarning, match="no trace for"):
        publishing.poll(publishing._page)
    assert target.read_text() == "precious" and mine().done == 1


def test_a_trace_with_another_file_in_its_place_is_explained(running, tmp_path, capsys, monkeypatch):  # noqa: F811
    process = running()
    monkeypatch.setattr("mytorch.cli.trace._wait", lambda asked, seconds: put(tmp_path, process.pid))
    assert main(["trace", "-s", "0.1", "--dir", str(tmp_path)]) == 1
    assert "it is a FIFO" in capsys.readouterr().err


def put(folder, pid):  # noqa: F811
    path = folder / f"trace-{pid}.log"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return []
