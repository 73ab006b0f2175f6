"""Memory: which operation made each array, how long it lived, and who holds what at the peak."""

from __future__ import annotations

import functools
import itertools
import weakref
from bisect import bisect_left, bisect_right
from collections import defaultdict
from time import perf_counter
from typing import NamedTuple

from ..autograd.tape import text_of_bytes
from ..backends.device import RawArray, device_of
from ..core.graph import owner_of
from ..stream.instruction import Instruction

BEFORE = "(before the trace)"


class Change(NamedTuple):
    """Memory that was allocated, or freed if `nbytes` is negative, at a time of `perf_counter`."""

    time: float
    nbytes: int
    device: str
    maker: Instruction | None


class MemoryRecord:
    """The arrays that operations made, from when they are first seen to when they are freed.

    Results of operations count, and what a vjp keeps for the backward pass; views don't, and not what an
    operation allocates and frees inside.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._alive: dict[int, weakref.ref] = {}
        self.is_open = True

    def see(self, raw: RawArray, maker: Instruction | None) -> None:
        """Counts the memory of an array, unless it is a view of one that was counted."""
        owner = owner_of(raw)
        key, nbytes = id(owner), getattr(owner, "nbytes", 0)
        if not nbytes or (key in self._alive and self._alive[key]() is owner):
            return
        device = str(device_of(raw))
        self._alive[key] = weakref.ref(owner, functools.partial(self._freed, key, nbytes, device, maker))
        self.changes.append(Change(perf_counter(), nbytes, device, maker))

    def _freed(self, key: int, nbytes: int, device: str, maker: Instruction | None, _: weakref.ref) -> None:
        self._alive.pop(key, None)
        if self.is_open:
            self.changes.append(Change(perf_counter(), -nbytes, device, maker))

    def by_instruction(self) -> dict[Instruction, dict[str, int]]:
        """Returns the bytes that each instruction allocated, by device."""
        found: dict[Instruction, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for change in self.changes:
            if change.nbytes > 0 and change.maker is not None:
                found[change.maker][change.device] += change.nbytes
        return found

    def peak_by_instruction(self, instructions: list[Instruction]) -> dict[Instruction, int]:
        """Returns the largest number of bytes that were alive while each instruction ran."""
        last = {c.maker: c.time for c in self.changes if c.nbytes > 0}  # soon after its end
        times = [change.time for change in self.changes]
        totals = [0, *itertools.accumulate(change.nbytes for change in self.changes)]
        found = {}
        for i in instructions:
            end = max(i.start + (i.duration or 0.0), last.get(i, 0.0))
            found[i] = max(totals[bisect_left(times, i.start) : bisect_right(times, end) + 1])
        return found

    def peak(self) -> tuple[int, list[Change]]:
        """Returns the largest number of bytes that were alive at once, and the allocations of these."""
        total = highest = at = 0
        for n, change in enumerate(self.changes, 1):
            total += change.nbytes
            if total > highest:
                highest, at = total, n
        alive: dict[tuple, list[Change]] = defaultdict(list)
        for change in self.changes[:at]:
            key = (change.maker, change.device, abs(change.nbytes))
            if change.nbytes > 0:
                alive[key].append(change)
            else:
                alive[key].pop()
        return highest, [change for changes in alive.values() for change in changes]

    def summary(self) -> str:
        """Returns a table of who holds what at the peak: by phase, by module, by operation."""
        highest, held = self.peak()
        lines = [f"peak {text_of_bytes(highest)}; held then by"]
        for title, of in (
            ("phase", lambda m: m.phase), ("module", lambda m: m.module or "(no module)"),
            ("operation", lambda m: m.name),
        ):
            groups: dict[str, int] = defaultdict(int)
            for change in held:
                groups[BEFORE if change.maker is None else of(change.maker)] += change.nbytes
            lines.append(f"  {title}")
            for name, nbytes in sorted(groups.items(), key=lambda pair: -pair[1]):
                lines.append(f"    {name:<40} {text_of_bytes(nbytes):>12}  {nbytes / highest:6.1%}")
        return "\n".join(lines)
