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

    def reset_peak(self) -> None:
        self.peak = self.allocated


memory = MemoryCount()
_next = itertools.count(1)
_APART = 1 << 64  # no array is so large


class Storage:
    """The memory of an array and of its views.

    Attributes:
        nbytes: its size.
    """

    __slots__ = ("nbytes", "_number")

    def __init__(self, nbytes: int):
        self.nbytes, self._number = nbytes, next(_next)
        memory.allocated = allocated = memory.allocated + nbytes
        if allocated > memory.peak:
            memory.peak = allocated

    def __del__(self, memory: MemoryCount = memory) -> None:  # at the end of Python the name is gone
        memory.allocated -= self.nbytes

    @property
    def start(self) -> int:
        """Its address, which no other storage ever has."""
        return self._number * _APART
