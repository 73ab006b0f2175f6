"""The memory that meta arrays don't have: addresses that overlap where it would, and how many bytes it is."""

from __future__ import annotations

import itertools


class MemoryCount:
    """Counts the bytes that meta arrays would hold.

    Attributes:
        allocated: now.
        peak: the most since `reset_peak`.
    """

    allocated = peak = 0

    def add(self, nbytes: int) -> None:
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)

    def reset_peak(self) -> None:
        self.peak = self.allocated


memory = MemoryCount()
_next = itertools.count(1)
_APART = 1 << 64  # no array is so large


class Storage:
    """The memory of an array and of its views.

    Attributes:
        start: its address, which no other storage ever has.
        nbytes: its size.
    """

    __slots__ = ("start", "nbytes")

    def __init__(self, nbytes: int):
        self.start, self.nbytes = _APART * next(_next), nbytes
        memory.add(nbytes)

    def __del__(self, memory: MemoryCount = memory) -> None:  # at the end of Python the name is gone
        memory.add(-self.nbytes)
