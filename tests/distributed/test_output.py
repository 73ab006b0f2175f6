"""What the launcher passes on of its ranks' output, and what it holds back: Open MPI's own messages."""

import io
import json
import threading

import pytest

from mytorch.distributed import error_report, output, root_cause
from tests.campaigns.launchers import REPORT

RULE = "-" * 74 + "\n"


def message(first):
    """One of Open MPI's, as it comes: between two rules, with the byte that ends it in C."""
    return f"{RULE}{first}\nand more of it\n\n{RULE}\0"


# Lines as Open MPI 5.0 and 4.1 write them.
HELD = {
    "abort": message("MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"),
    "aborted": message("prterun has exited due to process rank 1 with PID 0 on node vm calling"),
    "killed": message("prterun noticed that process rank 1 with PID 7930 on node vm exited on"),
    "exit code": message("prterun detected that one or more processes exited with non-zero status,"),
    "killed, 4.1": message("mpiexec noticed that process rank 1 with PID 0 on node vm exited on signal 9"),
    "exit code, 4.1": message("Primary job  terminated normally, but 1 process returned"),
    "daemon": message("PRTE has lost communication with a remote daemon."),
    "start": message("prte was unable to reliably start one or more daemons."),
    "connection": message("A process or daemon was unable to complete a TCP connection"),
    "PMIx": message("PMIx was unable to find a usable compression library"),
    "two messages": message("MPI_ABORT was invoked on rank 1") + message("prterun has exited due to"),
    "setpgid": "[vm:1] plm:ssh: Warning: setpgid(2,2) failed in parent with errno=Permission denied(13)\n",
    "delay": "[host1:00017] Delaying for 1 seconds before aborting\n",
    "libnbc": "MPI Error in NBC subrequest 0x558b0e7d2400 : 15\n",
    "libnbc, schedule": (
        "NBC_Progress: an error 15 was found during schedule 0x55d0 at row-offset 8 - aborting the schedule\n"
    ),
}
SHOWN = {
    "text": "epoch 3: loss 0.25\n",
    "no end of line": "a\nprogress\r50%",
    "a table": RULE + "my own table\n" + RULE,
    "a table of one line": RULE,
    "a table without an end": RULE + "name  value\nx     1\n",
    "a rule that is too short": "-" * 69 + "\nMPI_ABORT was\n" + "-" * 69 + "\n",
    "about MPI": "prterun is what starts us\nMPI_ABORT was invoked, in the log\n",
    "about libnbc": "see NBC_Progress: an error\nError: MPI Error in NBC subrequest\n",
    "about setpgid": "log: [a] plm:ssh: Warning: setpgid(1,1)\nlog: [a:1] Delaying for 1 seconds\n",
    "in brackets": "[vm:1] Delaying the start\n[1] plm: none\n",
    "of MPI": "[vm:00017] *** An error occurred in MPI_Allreduce\n[vm:00017] *** MPI_ERR_TRUNCATE\n",
    "a byte 0": "a\0b\0\n",
    "not UTF-8": "\ufffd\n",
}


def passed_on(text, folder, tagged=False):
    """What is shown of a stream, and what is held back."""
    shown = io.StringIO()
    reader = output.OutputFilter(io.BytesIO(text.encode()), shown, tagged, folder)
    reader.run()
    return shown.getvalue(), reader.held


@pytest.mark.parametrize("name", HELD)
def test_the_starters_own_messages_are_held_back(name, tmp_path):
    text = HELD[name]
    assert passed_on(f"a\n{text}b\n", tmp_path) == ("a\nb\n", text.replace("\0", ""))
    assert passed_on(text, tmp_path) == ("", text.replace("\0", ""))
    lines = text.replace("\0", "").splitlines(keepends=True)
    tagged = "".join(f"[1,3]<stderr>: {line}" for line in [*lines, "b\n"])
    assert passed_on(tagged, tmp_path, tagged=True) == ("[3] b\n", "".join(lines))


@pytest.mark.parametrize("name", SHOWN)
def test_what_ranks_write_is_passed_on(name, tmp_path):
    text = SHOWN[name]
    assert passed_on(text, tmp_path) == (text, "")
    assert passed_on(f"{HELD['libnbc']}{text}", tmp_path) == (text, HELD["libnbc"])


def test_the_byte_that_ends_a_message_of_open_mpi_is_no_output(tmp_path):
    """It also ends those without rules, and stands before what comes next."""
    shown = "[vm:1] *** An error occurred in Socket closed\n"
    noise = HELD["delay"]
    assert passed_on(f"{shown}\0{noise}\0\0{shown}\0", tmp_path) == (2 * shown, noise)


def test_lines_with_the_starters_tag(tmp_path):
    assert passed_on("[1,3]<stdout>: a\n[1,0]<stderr>: b\n", tmp_path, tagged=True)[0] == "[3] a\n[0] b\n"
    assert passed_on("2: slurm's label\n", tmp_path, tagged=True)[0] == "[2] slurm's label\n"
    assert passed_on("2: not a label\n", tmp_path)[0] == "2: not a label\n"


def test_last_lines_without_an_end(tmp_path):
    """Open MPI puts the next rank's tag behind them."""
    text = "[1,0]<stdout>: a[1,1]<stdout>: b\n[1,1]<stdout>: c[1,2]<stdout>: [1,2][1,3]<stdout>: d"
    assert passed_on(text, tmp_path, tagged=True)[0] == "[0] a\n[1] b\n[1] c\n[2] [1,2]\n[3] d"
    assert passed_on(text, tmp_path)[0] == text


def test_a_slow_target_gets_the_last_line(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "GRACE_SECONDS", 0.1)
    entered, released = threading.Event(), threading.Event()

    class Slow(io.StringIO):
        def write(self, text):
            entered.set()
            released.wait()
            return super().write(text)

    shown = Slow()
    reader = output.OutputFilter(io.BytesIO(b"the last line"), shown, False, tmp_path)
    reader.start()
    entered.wait()
    threading.Timer(0.5, released.set).start()
    reader.finish(lambda: False)
    assert shown.getvalue() == "the last line"


def test_a_target_that_takes_nothing_does_not_hold_a_signal_up(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "GRACE_SECONDS", 0.1)
    entered, released = threading.Event(), threading.Event()

    class Stuck(io.StringIO):
        def write(self, text):
            entered.set()
            released.wait()

    reader = output.OutputFilter(io.BytesIO(b"a"), Stuck(), False, tmp_path)
    reader.start()
    entered.wait()
    finishing = threading.Thread(target=reader.finish, args=(lambda: True,))
    finishing.start()
    finishing.join(60)
    is_held_up = finishing.is_alive()
    released.set()
    assert not is_held_up


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(28, "no space left on the device")], ids=str)
def test_a_closed_output(error, tmp_path):
    class Closed(io.StringIO):
        def write(self, text):
            raise error

    source = io.BytesIO(b"a\nb\n")
    output.OutputFilter(source, Closed(), False, tmp_path).run()
    assert source.read() == b""


@pytest.mark.parametrize("text", ["not JSON", "[1]", '{"a": 1}', '{"rank": "x"}', "[" * 100_000])
def test_what_only_looks_like_an_error_is_output(text, tmp_path):
    line = f"{error_report.ERROR_LINE}{text}\n"
    assert passed_on(f"{line}after\n", tmp_path) == (f"{line}after\n", "")


@pytest.mark.parametrize(
    "changes", [{}, {"code": True}, {"rank": False}, {"pid": 1.5}, {"traceback": [1]}], ids=str
)
def test_a_report_has_values_of_the_right_types(changes, tmp_path):
    """True is no number, though an int in Python."""
    line = f"{error_report.ERROR_LINE}{json.dumps(REPORT | changes)}\n"
    assert passed_on(line, tmp_path) == (line if changes else "", "")
    assert len(root_cause.read_errors(tmp_path)) == (not changes)


def test_an_error_from_another_machine(tmp_path, monkeypatch, capsys):
    """There is no run folder there: the error comes as a line of stderr."""
    monkeypatch.setenv("MYTORCH_RUN_FOLDER", str(tmp_path / "not_here"))
    monkeypatch.setattr(error_report._state, "rank", 5)
    error_report.report(ValueError("from far"))
    shown, _ = passed_on("before\n" + capsys.readouterr().err + "after\n", tmp_path)
    assert shown.split() == ["before", "after"]
    (facts,) = root_cause.read_errors(tmp_path)
    assert (facts["rank"], facts["message"], facts["kind"]) == (5, "from far", "exception")
