"""Which rank began it: the root cause of a failed job, out of all that its ranks say."""

from __future__ import annotations

import json
import re
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import failure, recorder

_BY_SIGNAL = re.compile(
    r"rank (\d+) with PID (\d+) on node (\S+) exited\s+on\s+signal\s+(\d+)|task (\d+):\s+(Killed|Terminated)"
)
_BY_CODE = re.compile(
    r"Process name:\s+\[.*?,(\d+)\]\s+Exit code:\s+(\d+)|task (\d+): Exited with exit code (\d+)"
    r"|process rank (\d+) with PID \d+ on node \S+ exiting\s+improperly"  # with code 0
)
_BY_LOSS = re.compile(r"lost communication with a remote daemon.*?Remote daemon:\s+\S+ on node (\S+)", re.S)
# The first of these that there is. One rank's exception makes others see an early exit or a broken line, and
# a rank that was killed makes them wait.
_ORDER = ("exception", "signal", "mismatch", "early exit", "connection", "timeout", "daemon")
_CRASH = "a crash in compiled code"
_MEANING = {
    signal.SIGKILL: "the system does that when memory runs out",
    signal.SIGSEGV: _CRASH,
    signal.SIGILL: _CRASH,
    signal.SIGFPE: _CRASH,
    signal.SIGABRT: _CRASH,
    signal.SIGBUS: f"{_CRASH}, or /dev/shm is full",
}


@dataclass
class Cause:
    """Why the job failed, and what the launcher exits with."""

    text: str
    code: int


def errors(folder: Path) -> list[dict[str, Any]]:
    """What the ranks of a job have reported."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("error-*.json"))]


def failed(folder: Path, messages: str, code: int) -> bool:
    """Did the job fail? Open MPI's starter exits with 0 when it loses a machine."""
    return code != 0 or bool(errors(folder)) or _BY_LOSS.search(messages) is not None


def find(folder: Path, messages: str, code: int, alone: int | None = None) -> Cause:
    """The root cause.

    Args:
        folder: with the ranks' error files and recorders.
        messages: what the starter said.
        code: what it exited with; -9 if signal 9 killed it.
        alone: the process, if there is no starter, but a single rank.
    """
    found = errors(folder)
    if alone is None:
        found += filter(None, (_signalled(messages, folder), _lost(messages, folder)))
    elif code < 0 and not found:
        found.append(_killed(folder, 0, socket.gethostname(), alone, -code))
    if found:
        first = min(found, key=lambda facts: (_ORDER.index(facts["kind"]), facts["time"]))
        return Cause(_describe(first, found), first["code"])
    ended = (0, code) if alone is not None else _exited(messages)
    if ended is not None:
        rank, status = ended
        text = f"rank {rank} {ending(status)}, and said nothing (os._exit?){_last_of(folder, rank)}"
        return Cause(text, status or 1)
    said = messages.strip() or ("nobody says why" if code >= 0 else "")
    text = f"what started the ranks (mpiexec, srun) {ending(code)}\n{said}"
    return Cause(text, (code if code >= 0 else 128 - code) or 1)


def ending(code: int) -> str:
    """What to say of a process that ended with this exit code; -9 if signal 9 killed it."""
    return f"was {_by_signal(-code)}" if code < 0 else f"ended with exit code {code}"


def _by_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:  # those for real time have no names
        name = f"SIG{number}"
    hint = _MEANING.get(number)
    return f"killed by {name} (signal {number})" + (f"; {hint}" if hint else "")


def _exited(messages: str) -> tuple[int, int] | None:
    """The rank that the starter names, and its exit code."""
    match = _BY_CODE.search(messages)
    return match and (int(match[1] or match[3] or match[5]), int(match[2] or match[4] or 0))


def _signalled(messages: str, folder: Path) -> dict[str, Any] | None:
    match = _BY_SIGNAL.search(messages)
    if match is None:
        return None
    number = int(match[4]) if match[4] else {"Killed": 9, "Terminated": 15}[match[6]]
    return _killed(folder, int(match[1] or match[5]), match[3] or "?", match[2] or "?", number)


def _killed(folder: Path, rank: int, host: str, pid: int | str, number: int) -> dict[str, Any]:
    """What a rank that a signal killed can't report itself."""
    flight = recorder.read_all(folder).get(rank)
    return {
        "rank": rank, "host": host, "pid": pid, "time": 0, "kind": "signal",
        "code": 128 + number, "type": "", "traceback": [], "message": _by_signal(number),
        "operation": str(flight.last) if flight and flight.last else "",
    }  # fmt: skip


def _lost(messages: str, folder: Path) -> dict[str, Any] | None:
    match = _BY_LOSS.search(messages)
    if match is None:
        return None
    text = "Open MPI lost its daemon there: the machine, the network or the daemon is gone"
    return failure.facts_of_machine(folder, f"machine {match[1]}", "connection", text, 1)


def _describe(first: dict[str, Any], found: list[dict[str, Any]]) -> str:
    others = sorted({facts["rank"] for facts in found if "rank" in facts} - {first.get("rank")})
    head = f"{first['type']}: {first['message']}" if first["type"] else first["message"]
    if first.get("finished"):
        gone = ", ".join(map(str, first["finished"]))
        head = f"rank {gone} ended, as with sys.exit(0), while others still wanted something of it\n{head}"
    who = first.get("who") or f"rank {first['rank']} on {first['host']} (process {first['pid']})"
    lines = [f"{who}, {first['kind']}:", head]
    if first["operation"]:
        lines.append(f"last operation: {first['operation']}")
    if first["traceback"]:
        lines += ["", *first["traceback"]]
    if others:
        lines += ["", f"then also: rank {', '.join(map(str, others))}"]
    return "\n".join(lines)


def _last_of(folder: Path, rank: int) -> str:
    flight = recorder.read_all(folder).get(rank)
    return f"\nlast operation: {flight.last}" if flight and flight.last else ""


def block(text: str) -> str:
    """The root cause with a frame, for stderr."""
    lines = text.splitlines()
    return "\n".join(["", "=== mytorchrun: root cause ===", *lines, "=== end of root cause ==="])
