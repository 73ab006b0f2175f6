"""Scratch memory that is kept from one operation to the next."""

from __future__ import annotations

import numpy as np

_KEPT = 2  # buffers
_LARGEST_KEPT = 64 << 20  # bytes; DDP's buckets are smaller


class Scratch:
    """Copies of arrays in memory that was used before.

    The system clears new memory before it gives it to a process, which takes as long as to sum what is in it.
    """

    def __init__(self):
        self._free: list[np.ndarray] = []  # the largest first

    def copy(self, x: np.ndarray) -> np.ndarray:
        """A copy of `x`, which may be written over after `give_back`."""
        fitting = [i for i, buffer in enumerate(self._free) if buffer.nbytes >= x.nbytes]
        buffer = self._free.pop(fitting[-1]) if fitting else np.empty(x.nbytes, np.uint8)
        made = buffer[: x.nbytes].view(x.dtype).reshape(x.shape)
        made[...] = x
        return made

    def give_back(self, copy: np.ndarray) -> None:
        """Nobody needs the copy any more."""
        if copy.nbytes <= _LARGEST_KEPT:
            self._free = sorted([*self._free, copy.base], key=lambda x: -x.nbytes)[:_KEPT]
