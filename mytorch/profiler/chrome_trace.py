"""Chrome traces: files for https://ui.perfetto.dev, chrome://tracing and TensorBoard.

Source: Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import itertools
import math
import os
from collections.abc import Iterable
from pathlib import Path

from ..stream.instruction import COMMUNICATION, DATA, Instruction, text_of
from ..utils.atomic import atomic_write
from ..utils.writing import json_text
from .memory import MemoryRecord

_GPU_LANE, _FIRST_THREAD = 2, 1000  # numbers of lanes in a rank
_LANES = {DATA: 1, COMMUNICATION: 3}


def trace_events(
    instructions: Iterable[Instruction], zero: float, memory: MemoryRecord | None = None
) -> list[dict[str, object]]:
    """Returns the events of a trace: one rank a process, in it lanes for data, communication and threads.

    Complete events ("X") for instructions, or a beginning ("B") for one that never ended, with arrows ("s",
    "f") from an op to its vjp; a counter ("C") for the memory in use. Times are microseconds since `zero`.
    """
    found, threads, lanes, in_flight, loads, ranks, gpu_end = [], {}, {}, {}, {}, set(), {}
    for i in instructions:
        ranks.add(i.rank)
        lane = _LANES.get(i.phase) if i.parent is None else None
        if lane == _LANES[COMMUNICATION]:  # several at once: each in a lane of its own
            lane = next(n for n in itertools.count(lane) if in_flight.get((i.rank, n), 0.0) <= i.start)
            in_flight[i.rank, lane] = _end(i)
            lanes[i.rank, lane] = "communication"
        elif lane is not None and _fits(i, loads.get(i.rank)):
            loads[i.rank] = i
            lanes[i.rank, lane] = "data"
        else:
            number = sum(rank == i.rank for rank, _ in threads)
            lane = threads.setdefault((i.rank, i.thread), _FIRST_THREAD + number)
        found.append(_complete(i, i.rank, lane, zero))
        if i.origin is not None and i.origin.start >= zero:
            found += _arrow(i, threads.get((i.rank, i.origin.thread), lane), lane, zero)
        if i.events is not None and (i.parent is None or i.parent.events is None):
            # in order: it begins when it was launched, or when the one before it ended
            start = max(gpu_end.get(i.rank, 0.0), 1e6 * (i.start - zero))
            gpu_end[i.rank] = start + 1e6 * i.device_time
            event = _complete(i, i.rank, _GPU_LANE, zero)
            found.append({**event, "cat": "kernel", "ts": start, "dur": gpu_end[i.rank] - start})
    lanes.update({(rank, lane): f"thread {lane - _FIRST_THREAD}" for (rank, _), lane in threads.items()})
    lanes.update({(rank, _GPU_LANE): "GPU, between CUDA events" for rank in gpu_end})
    for rank in sorted(ranks):
        found.append(_metadata("process_name", rank, 0, name=f"rank {rank}"))
        found.append(_metadata("process_sort_index", rank, 0, sort_index=rank))
    found += [_metadata("thread_name", rank, lane, name=name) for (rank, lane), name in lanes.items()]
    return found + ([] if memory is None else _counters(memory, zero, min(ranks, default=0)))


def _end(i: Instruction) -> float:
    return math.inf if i.duration is None else i.start + i.duration


def _fits(i: Instruction, last: Instruction | None) -> bool:
    """Whether what loads data lies within the last that did, or after it: another thread may load, too."""
    return last is None or last.thread == i.thread or _end(last) <= i.start


def _complete(i: Instruction, pid: int, tid: int, zero: float) -> dict[str, object]:
    arguments = {name: text_of(value) for name, value in i.named.items() if value is not None}
    facts = {
        "number": i.number, "phase": i.phase, "module": i.module, "bytes": i.nbytes,
        "result": ", ".join(map(str, i.outputs)), "at": i.site,
        "failed": i.failed,
    }
    length = {"ph": "B"} if i.duration is None else {"ph": "X", "dur": round(1e6 * i.duration, 3)}
    return {
        **length, "name": i.name, "cat": i.kind, "pid": pid, "tid": tid,
        "ts": round(1e6 * (i.start - zero), 3),
        "args": {**arguments, **{k: v for k, v in facts.items() if v}},
    }


def _arrow(i: Instruction, start_lane: int, lane: int, zero: float) -> list[dict[str, object]]:
    common = {"cat": "fwdbwd", "name": "fwdbwd", "id": i.number, "pid": i.rank}
    start, end = (round(1e6 * (x.start - zero), 3) for x in (i.origin, i))
    return [
        {"ph": "s", **common, "tid": start_lane, "ts": start},
        {"ph": "f", **common, "tid": lane, "ts": end, "bp": "e"},
    ]


def _metadata(what: str, pid: int, tid: int, **values: object) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": values}


def _counters(memory: MemoryRecord, zero: float, pid: int) -> list[dict[str, object]]:
    totals: dict[str, int] = {}
    found = []
    for change in memory.changes:
        totals[change.device] = totals.get(change.device, 0) + change.nbytes
        ts, name = max(0.0, round(1e6 * (change.time - zero), 3)), "memory in use"
        found.append({"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": ts, "args": dict(totals)})
    return found


def write_trace(
    path: str | os.PathLike, events: list[dict[str, object]], metadata: dict[str, object]
) -> None:
    """Writes a trace as JSON, compressed if the path ends in `.gz`."""
    text = json_text({"schemaVersion": 1, "displayTimeUnit": "ms", **metadata, "traceEvents": events})
    data = text.encode()
    with atomic_write(Path(path)) as file:
        Path(file).write_bytes(gzip.compress(data) if str(path).endswith(".gz") else data)
