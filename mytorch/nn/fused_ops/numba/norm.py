"""The norm of a long vector, and its scaling."""

from __future__ import annotations

import numpy as np

from ....backends.jit import kernel, prange
from .half import bits_of, downcast_like, require_dtypes, upcast

__all__ = ["require_dtypes", "scale", "sum_of_squares"]

ZERO = np.float32(0)
BLOCK = 1 << 14  # elements that are summed in float32; sums of blocks are added in float64


def sum_of_squares(x: np.ndarray) -> np.float32:
    """Returns the sum of x^2 of a vector, independent of the number of threads."""
    sums = np.empty(-(-x.size // BLOCK))
    _sums_of_squares(bits_of(x), sums)
    return np.float32(sums.sum())


@kernel
def _sums_of_squares(x, sums):
    for k in prange(sums.size):
        block = x[k * BLOCK : min(x.size, (k + 1) * BLOCK)]
        total = ZERO
        for i in range(block.size):
            value = upcast(block[i])
            total += value * value
        sums[k] = total


def scale(x: np.ndarray, factor: float) -> None:
    """x *= factor"""
    _scale(bits_of(x), np.float32(factor))


@kernel
def _scale(x, factor):
    for i in prange(x.size):
        x[i] = downcast_like(upcast(x[i]) * factor, x[i])
