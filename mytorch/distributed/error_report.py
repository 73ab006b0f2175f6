"""Error reports: how a rank that fails writes its error to a file or stderr, and ends all ranks."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypedDict

from ..utils import start
from . import flight_recorder
from .environment import RUN_FOLDER_VARIABLE
from .errors import DistError, DistMismatch, DistTimeout
from .processes import state_of

ERROR_LINE = "\x1emytorch-error "  # starts a report on stderr, on machines without the launcher's folder
# By priority: one rank's exception causes an early exit or a broken connection on others, and a killed rank
# causes timeouts.
KINDS = ("exception", "signal", "mismatch", "early exit", "connection", "timeout", "daemon")
_TYPES = {
    "time": (int, float), "kind": str, "code": int, "type": str, "message": str, "traceback": list,
    "operation": str,
}
_TRACEBACK_LINES = 40
_STACK_LINES = 12
_LONGEST_TEXT = 20_000  # characters of a message or a line: launchers exchange reports of limited size
_STACK_SECONDS = 0.3
_LAUNCHER_SECONDS = 5.0  # for the launcher to read our report, and to end the daemon
_TERMINATE_SECONDS = 1.0  # for a daemon that got SIGTERM
_PACKAGE = str(Path(__file__).parent) + os.sep
_RUN_SCRIPT = _PACKAGE + "run_script.py"
_ABOVE = (_RUN_SCRIPT, start.FILE, "<frozen")  # the script, in a stack


class ErrorReport(TypedDict, total=False):
    """What a rank, or the launcher of a machine, reports about an error."""

    rank: int
    host: str
    pid: int | str
    machine: int  # instead of the rank, for reports about a machine
    origin: str  # of such a report: how to call the machine
    time: float
    kind: str  # see `kind_of`; also "signal", and "daemon" (Open MPI's)
    code: int
    type: str
    message: str
    finished: Sequence[int]  # ranks that had exited
    traceback: list[str]
    operation: str


@dataclass
class _State:
    rank: int = 0
    abort: Callable[[int], object] | None = None
    stack_file: TextIO | None = None


_state = _State()


def install(rank: int, abort: Callable[[int], object] | None) -> None:
    """Makes an uncaught exception report itself and end all ranks.

    Args:
        abort: called with the exit code; ends all ranks.
    """
    _state.rank, _state.abort = rank, abort
    sys.excepthook = lambda kind, error, trace: fail(error)
    folder = _folder()
    if folder and hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        # Another rank that has waited too long sends this signal to get our stack.
        _state.stack_file = open(_stack_path(folder, os.getpid()), "w")  # noqa: SIM115 - until the process ends
        faulthandler.register(signal.SIGUSR1, file=_state.stack_file, all_threads=False)


def fail(error: BaseException) -> None:
    """Reports an error and ends all ranks."""
    with contextlib.suppress(OSError, ValueError):  # nothing must keep it from ending the others
        report(error)
    with contextlib.suppress(OSError, ValueError):
        flush_output()
    code = exit_code(error)
    if kind_of(error) in ("timeout", "connection") and _is_remote():
        _terminate_daemon()
    if _state.abort is not None:
        _state.abort(code)
    os._exit(code)


def flush_output() -> None:
    """Flushes stdout and stderr, unless the script has closed them."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _is_remote() -> bool:
    """Returns whether another machine started this rank, so that no launcher here would end it."""
    return "MYTORCH_REMOTE" in os.environ and RUN_FOLDER_VARIABLE in os.environ and _folder() is None


def _terminate_daemon() -> None:
    """Ends MPI's daemon on this machine, and with it the ranks, unless the launcher does so first.

    After a network failure the daemon would wait forever for commands of the launcher.
    """
    daemon = os.getppid()
    time.sleep(_LAUNCHER_SECONDS)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(daemon, number)
        time.sleep(_TERMINATE_SECONDS)


def exit_code(error: BaseException) -> int:
    """Returns the exit code of the process: never 0."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) and 0 < error.code < 256 else 1
    return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def kind_of(error: BaseException) -> str:
    """Returns exception, early exit, mismatch, timeout, or connection (an error of the backend)."""
    if isinstance(error, DistTimeout):
        return "timeout"
    if isinstance(error, DistMismatch):
        return "early exit" if error.finished else "mismatch"
    return "connection" if type(error) is DistError else "exception"


def report(error: BaseException) -> None:
    """Writes this rank's error file, or a line on stderr where the launcher's folder doesn't exist."""
    if RUN_FOLDER_VARIABLE not in os.environ:
        traceback.print_exception(error)
        return
    content = _report_of(error)
    folder = _folder()
    if folder:
        write_error(folder, content)
    else:
        sys.stderr.write(f"\n{ERROR_LINE}{json.dumps(content)}\n")


def write_error(folder: str | os.PathLike, content: ErrorReport) -> None:
    """Writes the error file of a rank, or of a machine, atomically.

    Raises:
        ValueError: it is no report; other machines send them.
    """
    _check(content)
    name = f"rank-{content['rank']:d}" if "rank" in content else f"machine-{content['machine']:d}"
    partial = Path(folder) / f".{name}"
    partial.write_text(json.dumps(content))
    partial.rename(Path(folder) / f"error-{name}.json")


_MOST = 1 << 31


def _check(content: object) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"an error report is a dict, got {content!r}")
    rank, machine = {"rank": int, "host": str, "pid": (int, str)}, {"machine": int, "origin": str}
    who = rank if "rank" in content else machine
    for name, kind in {**who, **_TYPES}.items():
        value = content.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"an error report can't have the {name} {value!r}")
        if name in ("rank", "machine") and not 0 <= value < _MOST:
            raise ValueError(f"the {name} of an error report is below {_MOST}, and not negative")
    if content["kind"] not in KINDS or not 0 < content["code"] < 256:
        raise ValueError(f"an error report can't be of {content['kind']!r} and code {content['code']}")
    lines, finished = content["traceback"], content.get("finished") or ()
    is_list = isinstance(finished, (list, tuple))
    if not is_list or {*map(type, lines)} - {str} or {*map(type, finished)} - {int}:
        raise ValueError(f"an error report can't have the lines {lines!r} and the ranks {finished!r}")


def write_machine_error(folder: Path, machine: int, name: str, kind: str, message: str, code: int) -> None:
    """Writes the error file of a machine, unless it exists: the first error of a machine is kept."""
    if not (folder / f"error-machine-{machine}.json").exists():
        content = machine_report(folder, f"machine {machine} ({name})", kind, message, code)
        write_error(folder, {"machine": machine, **content})


def machine_report(folder: Path, origin: str, kind: str, message: str, code: int) -> ErrorReport:
    """Returns the report about an error that concerns a whole machine."""
    flights = flight_recorder.read_all(folder).values()
    last = next((f"{flight.last} (rank {flight.rank})" for flight in flights if flight.last), "")
    return {
        "origin": origin, "time": time.time(), "kind": kind, "code": code, "type": "", "message": message,
        "traceback": [], "operation": last,
    }


def _report_of(error: BaseException) -> ErrorReport:
    flight = flight_recorder.read_all(_folder()).get(_state.rank)
    summary = traceback.TracebackException.from_exception(error, limit=0)  # str(error) itself may raise
    return {
        "rank": _state.rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.time(),
        "kind": kind_of(error),
        "code": exit_code(error),
        "type": type(error).__name__,
        "message": str(summary)[:_LONGEST_TEXT],
        "finished": getattr(error, "finished", ()),
        "traceback": _traceback_of(error),
        "operation": str(flight.last) if flight and flight.last else "",
    }


def _traceback_of(error: BaseException) -> list[str]:
    """Returns the traceback as lines, without this package's frames above the script and in collectives."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _RUN_SCRIPT:
        trace = trace.tb_next
    if isinstance(error, DistError):
        frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_PACKAGE)]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    else:
        lines = traceback.format_exception(type(error), error, trace)
    lines = "".join(lines).splitlines()
    if len(lines) > _TRACEBACK_LINES:
        lines = [lines[0], f"  … {len(lines) - _TRACEBACK_LINES} lines", *lines[1 - _TRACEBACK_LINES :]]
    return [line[:_LONGEST_TEXT] for line in lines]


def explain_timeout(rank: int, ranks: Sequence[int], own: flight_recorder.Record, timeout: float) -> str:
    """Returns what each rank of a group was doing when `rank` missed the deadline of an operation."""
    lines = [f"rank {rank}: {own.op} #{own.seq} of group {own.group} not complete after {timeout:g} s"]
    flights = flight_recorder.read_all(_folder())
    stacks = _stacks_of({other: flights[other].pid for other in ranks if other in flights and other != rank})
    for other in ranks:
        if other == rank:
            lines.append(f"  rank {rank}: {own}")
        elif other in flights:
            state = "at the end of the program" if flights[other].finished else flights[other].last
            lines.append(f"  rank {other}: {state or 'no operation yet'}{stacks.get(other, '')}")
        else:
            lines.append(f"  rank {other}: on another machine, or not started")
    return "\n".join(lines)


def _stacks_of(pids: dict[int, int]) -> dict[int, str]:
    """Returns the stacks of other ranks of this machine, by rank, as text to append to a line."""
    folder, found = _folder(), {}
    if not folder:
        return found
    for rank, pid in pids.items():
        state = state_of(pid)
        if state != "running":
            found[rank] = f" (process {pid} is {state})"
        elif _stack_path(folder, pid).exists():  # else it has no handler, and the signal would kill it
            os.kill(pid, signal.SIGUSR1)
    time.sleep(_STACK_SECONDS)
    for rank, pid in pids.items():
        path = _stack_path(folder, pid)
        if rank not in found and path.exists():
            lines = path.read_text().strip().splitlines()
            lines = [line for line in lines if not any(file in line for file in _ABOVE)]
            found[rank] = "".join(f"\n    {line}" for line in lines[:_STACK_LINES])
    return found


def _stack_path(folder: str, pid: int) -> Path:
    return Path(folder) / f"stack-{pid}"


def _folder() -> str | None:
    folder = os.environ.get(RUN_FOLDER_VARIABLE)
    return folder if folder and os.path.isdir(folder) else None
