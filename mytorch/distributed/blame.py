"""Which rank began it: the root cause of a failed job, out of all that its ranks say."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import failure, recorder

_BY_SIGNAL = re.compile(
    r"rank (\d+) with PID (\d+) on node (\S+) exited\s+on\s+signal\s+(\d+)|task (\d+):\s+(Killed|Terminated)"
)
_BY_CODE = re.compile(
    r"Process name:\s+\[.*?,(\d+)\]\s+Exit code:\s+(\d+)|task (\d+): Exited with exit code (\d+)"
)
_BY_LOSS = re.compile(r"lost communication with a remote daemon.*?Remote daemon:\s+\S+ on node (\S+)", re.S)
# The first of these that there is. One rank's exception makes others see an early exit or a broken line, and
# a rank that was killed makes them wait.
_ORDER = ("exception", "signal", "mismatch", "early exit", "connection", "timeout", "daemon")


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


def find(folder: Path, messages: str, code: int) -> Cause:
    """The root cause.

    Args:
        folder: with the ranks' error files and recorders.
        messages: what the starter said.
        code: what it exited with.
    """
    found = errors(folder)
    found += filter(None, (_signalled(messages, folder), _lost(messages, folder)))
    if found:
        first = min(found, key=lambda facts: (_ORDER.index(facts["kind"]), facts["time"]))
        return Cause(_describe(first, found), first["code"])
    if match := _BY_CODE.search(messages):
        rank, status = int(match[1] or match[3]), int(match[2] or match[4])
        text = (
            f"rank {rank} ended with exit code {status}, and said nothing (os._exit?){_last_of(folder, rank)}"
        )
        return Cause(text, status or 1)
    status = code if code > 0 else 128 - code
    said = messages.strip() or "nobody says why"
    return Cause(f"the ranks ended with exit code {code}\n{said}", status or 1)


def _signalled(messages: str, folder: Path) -> dict[str, Any] | None:
    match = _BY_SIGNAL.search(messages)
    if match is None:
        return None
    rank = int(match[1] or match[5])
    number = int(match[4]) if match[4] else {"Killed": 9, "Terminated": 15}[match[6]]
    flight = recorder.read_all(folder).get(rank)
    hint = "; the system does that when memory runs out" if number == signal.SIGKILL else ""
    return {
        "rank": rank, "host": match[3] or "?", "pid": match[2] or "?", "time": 0, "kind": "signal",
        "code": 128 + number, "type": "", "traceback": [],
        "message": f"killed by signal {number} ({signal.Signals(number).name}){hint}",
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
