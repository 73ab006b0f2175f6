"""The norm of a long vector, and its scaling."""

from __future__ import annotations

import numpy as np

from ....backends.jit import kernel, prange
from .half import bits_of, narrow_like, require_dtypes, widen

__all__ = ["require_dtypes", "scale", "sum_of_squares"]

ZERO = np.float32(0)
BLOCK = 1 << 14  # elements that are summed in float32; sums of blocks are added in float64


def sum_of_squares(x: np.ndarray) -> np.float32:
    """The sum of x^2 of a vector, the same whatever the number of threads."""
    sums = np.empty(-(-x.size // BLOCK))
    _sums_of_squares(bits_of(x), sums)
    return np.float32(sums.sum())


@kernel
def _sums_of_squares(x, sums):
    for k in prange(sums.size):
        block = x[k * BLOCK : min(x.size, (k + 1) * BLOCK)]
        total = ZERO
        for i in range(block.size):
            value = widen(block[i])
            total += value * value
        sums[k] = total


def scale(x: np.ndarray, factor: float) -> None:
    """x *= factor"""
    _scale(bits_of(x), np.float32(factor))


@kernel
def _scale(x, factor):
    for i in prange(x.size):
        x[i] = narrow_like(widen(x[i]) * factor, x[i])
