"""Which rank is named as the root cause, from all reports and the launcher command's messages."""

import json
import socket

import pytest

from mytorch.distributed import error_report, handshake, root_cause
from tests.every import every


def error(folder, rank, kind, time, code=1):
    facts = {"rank": rank, "host": "h", "pid": 1, "time": time, "kind": kind, "code": code, "type": "Error"}
    facts |= {"message": f"of {rank}", "traceback": [], "operation": ""}
    (folder / f"error-{rank}.json").write_text(json.dumps(facts))


KILLED = "prterun noticed that process rank 2 with PID 12 on node vm exited on\nsignal 9 (Killed).\n"
LOST = """PRTE has lost communication with a remote daemon.\n
  HNP daemon   : [prterun-a-1@0,0] on node a
  Remote daemon: [prterun-a-1@0,1] on node b\n"""
CAUSES = {
    "the first of a kind": ([(0, "exception", 5), (1, "exception", 4)], "", "rank 1 on", 1),
    "an exception before its consequences": (
        [(0, "timeout", 1), (1, "exception", 3), (2, "early exit", 2)], KILLED, "rank 1 on", 1,
    ),
    "a killed rank before what others saw": (
        [(0, "connection", 1), (1, "timeout", 2)], KILLED, "rank 2 on vm", 137,
    ),
    "a timeout if nothing else": ([(1, "timeout", 2), (0, "timeout", 1)], "", "rank 0 on", 1),
    "a label of Slurm": ([], "srun: error: node1: task 3: Killed", "rank 3 on", 137),
    "an exit code": ([], "Process name: [prterun-vm-1@1,2]\n  Exit code:    9\n", "rank 2 ended with", 9),
    "a machine": ([(0, "timeout", 1)], LOST, "machine b, connection:\nOpen MPI lost its daemon", 1),
    "a message of the command": ([], "no route to host b", "no route to host b", 4),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_root_cause(name, tmp_path):
    reports, messages, message, code = CAUSES[name]
    for rank, kind, time in reports:
        error(tmp_path, rank, kind, time)
    assert root_cause.has_failed(tmp_path, messages, 0) == bool(reports or messages == LOST)
    cause = root_cause.find_root_cause(tmp_path, messages, 4)
    assert message in cause.text and cause.code == code


def test_a_launcher_that_gets_a_signal_kills_its_ranks(tmp_path):
    error_report.write_machine_error(tmp_path, 1, "b", "signal", "its launcher got SIGINT", 130)
    cause = root_cause.find_root_cause(tmp_path, KILLED, 1)
    assert cause.text.startswith("machine 1 (b), signal:\nits launcher got SIGINT") and cause.code == 130


# How a process without a report ended: its root cause, and the launcher's exit code.
ENDED = {
    "killed": (-9, "signal:\nkilled by SIGKILL (signal 9); the system does that when memory runs out", 137),
    "crashed": (-11, "signal:\nkilled by SIGSEGV (signal 11); a crash in compiled code", 139),
    "room": (-7, "signal:\nkilled by SIGBUS (signal 7); a crash in compiled code, or /dev/shm is full", 135),
    "ended": (-15, "signal:\nkilled by SIGTERM (signal 15)", 143),
    "a signal without a name": (-40, "signal:\nkilled by SIG40 (signal 40)", 168),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_signal_has_one_description(name, tmp_path):
    code, message, expected = ENDED[name]
    single = root_cause.find_root_cause(tmp_path, "", code, single=123)
    assert single.text == f"rank 0 on {socket.gethostname()} (process 123), {message}"
    noticed = f"process rank 2 with PID 12 on node vm exited on signal {-code} (Text)."
    one_of_several = root_cause.find_root_cause(tmp_path, noticed, 1)
    assert one_of_several.text == f"rank 2 on vm (process 12), {message}"
    command = root_cause.find_root_cause(tmp_path, "", code)
    assert command.text.strip() == message.replace("signal:\n", "the launcher command (mpiexec, srun) was ")
    assert single.code == one_of_several.code == command.code == expected


def test_a_report_of_a_single_process_comes_before_its_end(tmp_path):
    error(tmp_path, 0, "timeout", 1, code=5)
    cause = root_cause.find_root_cause(tmp_path, "", -9, single=123)
    assert "of 0" in cause.text and "SIGKILL" not in cause.text and cause.code == 5


def test_a_single_process_without_a_report(tmp_path):
    cause = root_cause.find_root_cause(tmp_path, "", 3, single=123)
    assert (cause.text, cause.code) == (
        "rank 0 ended with exit code 3, without an error report (os._exit?)",
        3,
    )


LEFT = """prterun has exited due to process rank 1 with PID 15325 on node vm exiting
improperly. There are three reasons this could occur:
"""


def test_a_rank_that_exits_with_code_0_but_not_through_mpi(tmp_path):
    cause = root_cause.find_root_cause(tmp_path, LEFT, 1)
    text = "rank 1 ended with exit code 0, without an error report (os._exit?)"
    assert (cause.text, cause.code) == (text, 1)


def test_no_text_commands_the_terminal(tmp_path, capfd):
    """Whoever reaches the port of machine 0 may send some."""
    error(tmp_path, "0\x1b[2J", "exception", 1)
    text = root_cause.framed(root_cause.find_root_cause(tmp_path, "", 1).text + "\n\tof a line\r\u202e")
    assert "0?[2J" in text and "\n    of a line" in text and every(map(str.isprintable, text.split("\n")))
    handshake.print_message("machine 0 refused one: its name is \x1b[2J\n")
    assert capfd.readouterr().err == "mytorchrun: machine 0 refused one: its name is ?[2J?\n"


@pytest.mark.parametrize("name, value", [
    ("kind", "nonsense"), ("code", 0), ("code", 256), ("code", True), ("rank", -1), ("rank", 2**31),
    ("traceback", [3]), ("finished", ["0"]), ("finished", 3), ("message", None),
])
def test_a_report_with_one_wrong_value_is_refused(name, value, tmp_path):
    error(tmp_path, 0, "exception", 1.0)
    report = json.loads((tmp_path / "error-0.json").read_text())
    for code in (1, 255):
        error_report.write_error(tmp_path, {**report, "code": code})
    with pytest.raises(ValueError, match="an error report|error report is below"):
        error_report.write_error(tmp_path, {**report, name: value})
