"""The root cause of a failed job: which rank failed first, from all error reports and launcher messages."""

from __future__ import annotations

import json
import re
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from ..utils.reading import printable
from . import flight_recorder
from .error_report import KINDS, ErrorReport, machine_report

_KILLED = re.compile(
    r"rank (\d+) with PID (\d+) on node (\S+) exited\s+on\s+signal\s+(\d+)|task (\d+):\s+(Killed|Terminated)"
)
_EXITED = re.compile(
    r"Process name:\s+\[.*?,(\d+)\]\s+Exit code:\s+(\d+)|task (\d+): Exited with exit code (\d+)"
    r"|process rank (\d+) with PID \d+ on node \S+ exiting\s+improperly"  # with code 0
)
_LOST_DAEMON = re.compile(
    r"lost communication with a remote daemon.*?Remote daemon:\s+\S+ on node (\S+)", re.S
)
_CRASH = "a crash in compiled code"
_HINTS = {
    signal.SIGKILL: "the system does that when memory runs out",
    signal.SIGSEGV: _CRASH,
    signal.SIGILL: _CRASH,
    signal.SIGFPE: _CRASH,
    signal.SIGABRT: _CRASH,
    signal.SIGBUS: f"{_CRASH}, or /dev/shm is full",
}


@dataclass
class RootCause:
    """Why the job failed, and the launcher's exit code."""

    text: str
    code: int


def read_errors(folder: Path) -> list[ErrorReport]:
    """Returns the error reports in the folder of a run."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("error-*.json"))]


def has_failed(folder: Path, messages: str, code: int) -> bool:
    """Returns whether the job failed. mpiexec exits with 0 when it loses a machine."""
    return code != 0 or bool(read_errors(folder)) or _LOST_DAEMON.search(messages) is not None


def find_root_cause(folder: Path, messages: str, code: int, single: int | None = None) -> RootCause:
    """Returns the root cause of a failed job.

    Args:
        folder: with the ranks' error files and flight recorders.
        messages: of the launcher command.
        code: its exit code; -9 if signal 9 killed it.
        single: the process id of the rank, if one rank was started without mpiexec or srun.
    """
    reports = read_errors(folder)
    if single is None:
        reports += filter(None, (_killed_rank(messages, folder), _lost_machine(messages, folder)))
    elif code < 0 and not reports:
        reports.append(_killed_report(folder, 0, socket.gethostname(), single, -code))
    if reports:
        first = min(reports, key=_order)
        return RootCause(_describe(first, reports), first["code"])
    exited = (0, code) if single is not None else _exited_rank(messages)
    if exited is not None:
        rank, status = exited
        text = f"rank {rank} {describe_exit(status)}, without an error report (os._exit?)"
        return RootCause(text + _last_operation(folder, rank), status or 1)
    details = messages.strip() or ("no rank reported an error" if code >= 0 else "")
    text = f"the launcher command (mpiexec, srun) {describe_exit(code)}\n{details}"
    return RootCause(text, (code if code >= 0 else 128 - code) or 1)


def _order(report: ErrorReport) -> tuple[int, bool, float]:
    """The earliest of the worst kind; but a launcher that gets a signal kills its ranks, at unknown times."""
    return KINDS.index(report["kind"]), report["kind"] == "signal" and "rank" in report, report["time"]


def framed(text: str) -> str:
    """Returns the root cause in a frame, for stderr; another machine may have sent it."""
    lines = [printable(line.expandtabs(4)) for line in text.splitlines()]
    return "\n".join(["", "=== mytorchrun: root cause ===", *lines, "=== end of root cause ==="])


def describe_exit(code: int) -> str:
    """Returns how a process with this exit code ended; -9 if signal 9 killed it."""
    return f"was {_describe_signal(-code)}" if code < 0 else f"ended with exit code {code}"


def _describe_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        name = f"SIG{number}"
    hint = _HINTS.get(number)
    return f"killed by {name} (signal {number})" + (f"; {hint}" if hint else "")


def _exited_rank(messages: str) -> tuple[int, int] | None:
    """Returns the rank that the launcher command names, and its exit code."""
    match = _EXITED.search(messages)
    return match and (int(match[1] or match[3] or match[5]), int(match[2] or match[4] or 0))


def _killed_rank(messages: str, folder: Path) -> ErrorReport | None:
    """Returns the report of a rank that was killed, as the launcher command's messages name it."""
    match = _KILLED.search(messages)
    if match is None:
        return None
    number = int(match[4]) if match[4] else {"Killed": 9, "Terminated": 15}[match[6]]
    return _killed_report(folder, int(match[1] or match[5]), match[3] or "?", match[2] or "?", number)


def _killed_report(folder: Path, rank: int, host: str, pid: int | str, number: int) -> ErrorReport:
    """Returns the report that a rank can't write itself when a signal kills it."""
    flight = flight_recorder.read_all(folder).get(rank)
    return {
        "rank": rank, "host": host, "pid": pid, "time": 0, "kind": "signal",
        "code": 128 + number, "type": "", "traceback": [], "message": _describe_signal(number),
        "operation": str(flight.last) if flight and flight.last else "",
    }


def _lost_machine(messages: str, folder: Path) -> ErrorReport | None:
    match = _LOST_DAEMON.search(messages)
    if match is None:
        return None
    text = "Open MPI lost its daemon: the machine, the network or the daemon is gone"
    return machine_report(folder, f"machine {match[1]}", "connection", text, 1)


def _describe(first: ErrorReport, reports: list[ErrorReport]) -> str:
    others = sorted({report["rank"] for report in reports if "rank" in report} - {first.get("rank")})
    head = f"{first['type']}: {first['message']}" if first["type"] else first["message"]
    if first.get("finished"):
        finished = ", ".join(map(str, first["finished"]))
        head = f"rank {finished} exited, as with sys.exit(0), while other ranks waited for it\n{head}"
    origin = first.get("origin") or f"rank {first['rank']} on {first['host']} (process {first['pid']})"
    lines = [f"{origin}, {first['kind']}:", head]
    if first["operation"]:
        lines.append(f"last operation: {first['operation']}")
    if first["traceback"]:
        lines += ["", *first["traceback"]]
    if others:
        lines += ["", f"errors followed on rank {', '.join(map(str, others))}"]
    return "\n".join(lines)


def _last_operation(folder: Path, rank: int) -> str:
    flight = flight_recorder.read_all(folder).get(rank)
    return f"\nlast operation: {flight.last}" if flight and flight.last else ""
