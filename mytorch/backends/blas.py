"""Products of raw arrays: every matrix product of mytorch goes through here."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np


def product(x: Any, y: Any) -> Any:
    """x @ y, with float16 accumulated in float32.

    Where `y` is one matrix, the leading dims of `x` become rows: one large product, not many small ones.
    Transposed and strided operands are passed on as they are: BLAS reads them without a copy.

    Args:
        x: (..., m, k).
        y: (..., k, n), of the same dtype.
    """
    if x.dtype == np.float16 and isinstance(x, np.ndarray):  # NumPy would accumulate in float16, without BLAS
        return product(x.astype(np.float32), y.astype(np.float32)).astype(np.float16)
    if y.ndim == 2 and x.ndim > 2:
        return np.reshape(np.matmul(rows(x), y), (*x.shape[:-1], y.shape[-1]))
    return np.matmul(x, y)


def rows(x: Any) -> Any:
    """`x` as a matrix: all dimensions but the last become rows."""
    return np.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def column_sums(x: Any) -> Any:
    """The sum of all rows of float32 or float64 matrices, (..., m, n) to (..., n).

    On the CPU it is a product with ones: a few times as fast as np.sum, and closer to the exact sum, because
    BLAS adds in blocks where np.sum adds row after row.
    """
    if isinstance(x, np.ndarray):
        return np.matmul(_ones(x.shape[-2], x.dtype), x)
    return np.sum(x, axis=-2)


def row_sums(x: Any) -> Any:
    """The sum of each float32 or float64 row, (..., n) to (..., 1); on the CPU a product with ones, too."""
    if isinstance(x, np.ndarray):
        return np.matmul(x, _ones(x.shape[-1], x.dtype)[:, None])
    return np.sum(x, axis=-1, keepdims=True)


def _ones(n: int, dtype: np.dtype) -> np.ndarray:
    return _kept_ones(n, dtype) if n <= 1 << 16 else np.ones(n, dtype)


@functools.lru_cache(maxsize=64)
def _kept_ones(n: int, dtype: np.dtype) -> np.ndarray:
    ones = np.ones(n, dtype)
    ones.flags.writeable = False  # everybody gets the same one
    return ones
