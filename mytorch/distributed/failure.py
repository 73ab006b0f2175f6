"""How a rank fails: it says why, in a file or on stderr, and takes the whole job with it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import recorder
from .environment import RUN_FOLDER_VARIABLE
from .errors import DistError, DistMismatch, DistTimeout

ERROR_LINE = "\x1emytorch-error "  # begins an error on stderr, from where the launcher's folder isn't
_TRACEBACK_LINES = 40
_STACK_SECONDS = 0.3
_ORDERS_SECONDS = 5.0  # for the launcher to read our report, and have everything ended
_END_SECONDS = 1.0  # for a daemon that was asked to end
_PR_SET_PDEATHSIG = 1
_HERE = str(Path(__file__).parent) + os.sep
_ENTRY = _HERE + "entry.py"
_state: dict[str, Any] = {"rank": 0, "abort": None}


def install(rank: int, abort: Any) -> None:
    """From now on an uncaught exception is reported and ends all ranks.

    Args:
        abort: called with the exit code; it ends all ranks.
    """
    _state.update(rank=rank, abort=abort)
    sys.excepthook = lambda kind, error, trace: fail(error)
    folder = _folder()
    if folder and hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        # Another rank asks in this way where we are, when it has waited too long for us.
        _state["stack"] = open(_stack_path(folder, os.getpid()), "w")  # noqa: SIM115 - as long as the process
        faulthandler.register(signal.SIGUSR1, file=_state["stack"], all_threads=False)


def die_with_parent() -> None:
    """Let the system end this process when the one that started it is gone (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def fail(error: BaseException) -> None:
    """Report what happened and end all ranks."""
    report(error)
    sys.stdout.flush()
    sys.stderr.flush()
    code = exit_code(error)
    if kind_of(error) in ("timeout", "connection") and _is_far():
        _end_the_daemon()
    if _state["abort"] is not None:
        _state["abort"](code)
    os._exit(code)


def _is_far() -> bool:
    """Was this rank started from another machine, which has no launcher here that would end it?"""
    return "MYTORCH_REMOTE" in os.environ and RUN_FOLDER_VARIABLE in os.environ and _folder() is None


def _end_the_daemon() -> None:
    """End MPI's daemon on this machine, unless it ends first, as ordered: it would wait for ever for orders
    that don't come any more if the link is cut. The ranks here end with it."""
    daemon = os.getppid()
    time.sleep(_ORDERS_SECONDS)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(daemon, number)
        time.sleep(_END_SECONDS)


def exit_code(error: BaseException) -> int:
    """What the process ends with: never 0."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) and 0 < error.code < 256 else 1
    return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def report(error: BaseException) -> None:
    """Write the error file of this rank, or a line on stderr where there is no folder for it."""
    if RUN_FOLDER_VARIABLE not in os.environ:
        traceback.print_exception(error)
        return
    facts = _facts(error)
    folder = _folder()
    if folder:
        keep(folder, facts)
    else:
        sys.stderr.write(f"\n{ERROR_LINE}{json.dumps(facts)}\n")


def keep(folder: str | os.PathLike, facts: dict[str, Any]) -> None:
    """Write an error file, whole or not at all: of a rank, or of a machine as a whole."""
    name = f"rank-{facts['rank']:d}" if "rank" in facts else f"machine-{facts['machine']:d}"
    partial = Path(folder) / f".{name}"
    partial.write_text(json.dumps(facts))
    partial.rename(Path(folder) / f"error-{name}.json")


def keep_of_machine(folder: Path, machine: int, name: str, kind: str, text: str, code: int) -> None:
    """Write an error file of what a launcher, not a rank, has to tell; the first of a machine stays."""
    if not (folder / f"error-machine-{machine}.json").exists():
        facts = facts_of_machine(folder, f"machine {machine} ({name})", kind, text, code)
        keep(folder, {"machine": machine, **facts})


def facts_of_machine(folder: Path, who: str, kind: str, text: str, code: int) -> dict[str, Any]:
    """What went wrong on a machine, in the form of a rank's report."""
    flights = recorder.read_all(folder).values()
    last = next((f"{flight.last} (rank {flight.rank})" for flight in flights if flight.last), "")
    return {
        "who": who, "time": time.time(), "kind": kind, "code": code, "type": "", "message": text,
        "traceback": [], "operation": last,
    }  # fmt: skip


def _facts(error: BaseException) -> dict[str, Any]:
    flight = recorder.read_all(_folder()).get(_state["rank"])
    said = traceback.TracebackException.from_exception(error, limit=0)  # str(error) itself may raise
    return {
        "rank": _state["rank"],
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.time(),
        "kind": kind_of(error),
        "code": exit_code(error),
        "type": type(error).__name__,
        "message": str(said),
        "finished": getattr(error, "finished", ()),
        "traceback": _traceback_of(error),
        "operation": str(flight.last) if flight and flight.last else "",
    }


def _traceback_of(error: BaseException) -> list[str]:
    """The traceback as lines, without our own frames: above the script, and below a collective."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _ENTRY:
        trace = trace.tb_next
    if isinstance(error, DistError):
        frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_HERE)]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    else:
        lines = traceback.format_exception(type(error), error, trace)
    lines = "".join(lines).splitlines()
    if len(lines) > _TRACEBACK_LINES:
        lines = [lines[0], f"  … {len(lines) - _TRACEBACK_LINES} lines", *lines[1 - _TRACEBACK_LINES :]]
    return lines


def kind_of(error: BaseException) -> str:
    """exception, early exit, mismatch, timeout, or connection: what the engine says."""
    if isinstance(error, DistTimeout):
        return "timeout"
    if isinstance(error, DistMismatch):
        return "early exit" if error.finished else "mismatch"
    return "connection" if type(error) is DistError else "exception"


def state_of(pid: int) -> str:
    """How a process of this machine is: "running", "stopped" or "gone"."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(state, "running")


def stacks_of(pids: dict[int, int]) -> dict[int, str]:
    """Where other ranks of this machine are in their programs, by rank, as text to append to a line."""
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
            lines = [
                x for x in path.read_text().strip().splitlines() if _ENTRY not in x and "<frozen" not in x
            ]
            found[rank] = "".join(f"\n    {line}" for line in lines[:12])
    return found


def explain_timeout(me: int, ranks: Sequence[int], mine: recorder.Record, timeout: float) -> str:
    """What the ranks of a group were doing, when rank `me` gave up an operation."""
    lines = [f"rank {me}: {mine.op} #{mine.seq} of group {mine.group} not over after {timeout:g} s"]
    flights = recorder.read_all(_folder())
    stacks = stacks_of({rank: flights[rank].pid for rank in ranks if rank in flights and rank != me})
    for rank in ranks:
        if rank == me:
            lines.append(f"  rank {me}: {mine}")
        elif rank in flights:
            state = "at the end of the program" if flights[rank].finished else flights[rank].last
            lines.append(f"  rank {rank}: {state or 'no operation yet'}{stacks.get(rank, '')}")
        else:
            lines.append(f"  rank {rank}: on another machine, or not even started")
    return "\n".join(lines)


def _stack_path(folder: str, pid: int) -> Path:
    return Path(folder) / f"stack-{pid}"


def _folder() -> str | None:
    folder = os.environ.get(RUN_FOLDER_VARIABLE)
    return folder if folder and os.path.isdir(folder) else None
