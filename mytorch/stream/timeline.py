"""The timeline of a log: a band a rank, in it lanes for compute, communication, data …; idle time."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .instruction import BACKWARD, COMMUNICATION, DATA, FORWARD, OPTIMIZER, Instruction

COMPUTE, THREADS = "compute", "threads"  # that which begins most operations, and all others
LANES = (COMPUTE, THREADS, COMMUNICATION, DATA)
COLOURS = {
    "product": "#3b6fb6", "attention": "#7a4fa3", "convolution": "#1f8a8a", "normalization": "#e0a030",
    "elementwise": "#6aa84f", "reduction": "#a3c45a", "loss": "#c0392b", "embedding": "#b5651d",
    "view": "#b8b8b8", "copy": "#8a8f98", "optimizer": "#d1618a", "communication": "#e4572e",
    "data": "#56bfe0", "annotation": "#dddddd",
}
_OPEN, _LEAST = 0.03, 1e-4  # the least width of an operation that never ended: of the whole, and in seconds
PHASE_COLOURS = {FORWARD: "#e8f0fb", BACKWARD: "#fbefe6", OPTIMIZER: "#fbe8f1"}


@dataclass
class Bar:
    """An instruction in a lane; times in seconds since the first operation of the log.

    row, rows: its row among those of operations that overlap with it, and how many there are.
    height: from 0.3 to 1: a tenth of the most bytes is 0.175 less than 1.
    is_open: it never ended: the operation that hangs.
    is_hatched: it never ended, or it failed.
    thread: in which it ran: 0, or from 1 that of the lane "threads".
    """

    instruction: Instruction
    start: float
    end: float
    row: int = 0
    rows: int = 1
    height: float = 1.0
    is_open: bool = False
    thread: int = 0

    @property
    def is_hatched(self) -> bool:
        return self.is_open or self.instruction.failed

    @property
    def text(self) -> str:
        """What a reader wants to know of it, in a few lines."""
        i = self.instruction
        duration = "never ended" if self.is_open else f"{1e3 * (self.end - self.start):.3f} ms"
        duration = f"failed after {duration}" if i.failed else duration
        thread = f", thread {self.thread}" if self.thread else ""
        lines = [f"{i.name}  ({duration})", f"{i.phase}, {i.kind}, rank {i.rank}{thread}", i.module]
        lines += [f"{name} = {value}" for name, value in i.named.items() if value is not None]
        lines += [f"result = {operand}" for operand in i.outputs]
        return "\n".join(filter(None, lines))


@dataclass
class Arrow:
    """From the start of a collective on the rank that came last, to its end on another rank that waited."""

    late: Bar
    waiting: Bar


@dataclass
class Timeline:
    """What is drawn.

    Attributes:
        bars: by rank and lane, in the order in which they began; operations within others are left out.
        ranks: of the log, also those in which nothing runs in the part of it that is drawn.
        instructions: all in this part, also those within others, by their beginning.
        arrows: between the ranks of a collective.
        phases: by rank: (phase, start, end) of consecutive compute bars.
        seconds: from the first beginning to the last end.
        begin: of what is drawn, in seconds since the first operation of the log.
        first: when that one began, in seconds since 1970.
    """

    bars: dict[tuple[int, str], list[Bar]] = field(default_factory=dict)
    ranks: list[int] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    phases: dict[int, list[tuple[str, float, float]]] = field(default_factory=dict)
    seconds: float = 0.0
    begin: float = 0.0
    first: float = 0.0

    def idle(self, rank: int, lane: str) -> float:
        """Returns the share of the time in which nothing runs in a lane, from 0 to 1."""
        busy, reached = 0.0, self.begin
        for bar in self.bars.get((rank, lane), ()):
            start = max(bar.start, reached)
            busy += max(0.0, bar.end - start)
            reached = max(reached, bar.end)
        return 1 - busy / self.seconds if self.seconds else 1.0

    def seconds_by_kind(self) -> dict[str, float]:
        """Returns the time of each kind of operation, over all ranks, longest first."""
        found: dict[str, float] = defaultdict(float)
        for bars in self.bars.values():
            for bar in bars:
                found[bar.instruction.kind] += bar.end - bar.start
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def make_timeline(instructions: Iterable[Instruction], start: float = 0.0, end: float = math.inf) -> Timeline:
    """Returns the timeline of instructions, as `read_log` returns them.

    Args:
        start, end: the part of it, in seconds since the first instruction.

    Raises:
        ValueError: no instruction in this part.
    """
    everything = sorted((i for i in instructions if i.kind != "annotation"), key=lambda i: i.start)
    if not everything:
        raise ValueError("the log has no operations")
    first, last = everything[0].start, _last(everything)
    listed = [
        i for i in everything
        if i.start - first < end and (last if i.duration is None else i.start + i.duration) - first > start
    ]
    if not listed:
        raise ValueError(f"no operation between {start} and {end} seconds; the log has {last - first:.6f}")
    begin, stop = max(start, listed[0].start - first), min(last - first, end)
    ranks = sorted({i.rank for i in everything})
    line = Timeline(ranks=ranks, instructions=listed, seconds=stop - begin, begin=begin, first=first)
    most = max(1, *(i.nbytes for i in listed))
    threads = _threads(everything)
    for i in listed:
        ended = last if i.duration is None else i.start + i.duration
        bar = Bar(i, max(begin, i.start - first), min(ended - first, stop), is_open=i.duration is None)
        bar.height = 0.3 + 0.7 * max(0.0, 1 + math.log10(max(1, i.nbytes) / most) / 4)
        bar.thread = threads[i.rank, i.thread]
        lane = i.phase if i.phase in (COMMUNICATION, DATA) else THREADS if bar.thread else COMPUTE
        line.bars.setdefault((i.rank, lane), []).append(bar)
    for key, bars in line.bars.items():
        line.bars[key] = _rows(bars if key[1] == COMMUNICATION else _outer(bars))
    for rank in line.ranks:
        line.phases[rank] = _phases(line.bars.get((rank, COMPUTE), []))
    line.arrows = _arrows([b for rank in line.ranks for b in line.bars.get((rank, COMMUNICATION), ())])
    return line


def _last(instructions: list[Instruction]) -> float:
    """Returns the end; what never ended has a width there, though nothing says how long it has run."""
    last = max([i.start + (i.duration or 0.0) for i in instructions], default=0.0)
    hanging = [i.start for i in instructions if i.duration is None]
    if not hanging:
        return last
    return max(last, max(hanging) + max(_OPEN * (last - instructions[0].start), _LEAST))


def _threads(instructions: list[Instruction]) -> dict[tuple[int, int], int]:
    """Returns a number for each rank and thread: 0 for that which begins most operations of the rank."""
    counts = Counter((i.rank, i.thread) for i in instructions)
    numbers: dict[int, Iterator[int]] = defaultdict(itertools.count)
    return {(rank, thread): next(numbers[rank]) for (rank, thread), _ in counts.most_common()}


def _outer(bars: list[Bar]) -> list[Bar]:
    """Returns the bars that lie in no other of their thread: an operation may call others."""
    found: list[Bar] = []
    last: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        before = last[bar.thread]
        if not any(o.start <= bar.start and bar.end <= o.end for o in before[-8:]):
            before.append(bar)
            found.append(bar)
    return found


def _rows(bars: list[Bar]) -> list[Bar]:
    """Gives bars that overlap rows of their own, and returns all."""
    group: list[Bar] = []
    for bar in [*bars, None]:
        if bar is not None and group and bar.start < max(b.end for b in group):
            taken = {b.row for b in group if b.end > bar.start}
            bar.row = next(row for row in range(len(taken) + 1) if row not in taken)
            group.append(bar)
            continue
        for b in group:
            b.rows = 1 + max(other.row for other in group)
        group = [bar]
    return bars


def _phases(bars: list[Bar]) -> list[tuple[str, float, float]]:
    found: list[tuple[str, float, float]] = []
    for bar in bars:
        phase = bar.instruction.phase
        if found and found[-1][0] == phase:
            found[-1] = phase, found[-1][1], bar.end
        else:
            found.append((phase, bar.start, bar.end))
    return found


def _arrows(bars: list[Bar]) -> list[Arrow]:
    same: dict[tuple, list[Bar]] = defaultdict(list)
    for bar in bars:
        named = bar.instruction.named
        if "peers" not in named and not bar.is_open:
            same[bar.instruction.name, named.get("group"), named.get("seq")].append(bar)
    found = []
    for calls in same.values():
        late = max(calls, key=lambda bar: bar.instruction.start)
        found += [Arrow(late, bar) for bar in calls if bar.instruction.rank != late.instruction.rank]
    return found
