"""Means, variances and sums of columns for the kernels of normalization."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from .elementwise import load32, store
from .launch import launch
from .sizes import cdiv, next_power_of_2


def contiguous(*arrays: RawArray | None) -> list[RawArray | None]:
    """Returns the arrays in C order; None stays None."""
    return [a if a is None or a.flags.c_contiguous else np.ascontiguousarray(a, like=a) for a in arrays]


@triton.jit
def moments_of(x, inside, size):
    """The means of rows with `size` elements inside, and their sums of squared distances from it."""
    mean, centred = centre(x, inside, size, 1)
    return mean, tl.sum(centred * centred, axis=1, keep_dims=True)


@triton.jit
def centre(x, inside, size, AXIS: tl.constexpr):
    """The means along an axis with `size` elements inside, and the distances from them, 0 outside.

    An offset that all elements have is rounded in their mean, but no longer in their mean distance from it.
    """
    mean = tl.sum(x, axis=AXIS, keep_dims=True) / size
    centred = tl.where(inside, x - mean, 0.0)
    shift = tl.sum(centred, axis=AXIS, keep_dims=True) / size
    return tl.where(shift == shift, mean + shift, mean), tl.where(inside, centred - shift, 0.0)


@triton.jit
def merge(mean, squares, size, other_mean, other_squares, other_size):
    """The moments of the union of two sets: T. Chan, G. Golub & R. LeVeque, 1979, equation 2.1."""
    weight = other_size / (size + other_size)
    distance = other_mean - mean
    return mean + distance * weight, squares + other_squares + distance * distance * (size * weight)


@triton.jit
def _column_sums(x_ptr, out_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Shapes: x (rows, n); out (n,)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        sums += load32(x_ptr, row.to(tl.int64) * n + column, (row < rows) & (column < n))
    out = tl.sum(sums, axis=0, keep_dims=True)
    store(out_ptr, column, out, column < n)


def dtypes_of(*parameters: RawArray | None) -> list[np.dtype | None]:
    """Returns the dtypes of parameters, None for None: all that backward needs to know of a bias."""
    return [None if p is None else p.dtype for p in parameters]


def column_sums(x: RawArray | None, dtype: np.dtype | None) -> RawArray | None:
    """Returns the sums of the columns of a float32 matrix in a dtype, or None if that is None."""
    if dtype is None:
        return None
    rows, n = x.shape
    if not x.size:
        return np.zeros(n, dtype, like=x)
    out = np.empty(n, dtype, like=x)
    height = min(64, next_power_of_2(rows))
    block = 2048 // height
    launch(_column_sums, (cdiv(n, block),), x, out, rows, n, ROWS=height, BLOCK=block, num_warps=4)
    return out
