"""What the kernels of normalization share on the GPU: means and variances, and sums of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from .elementwise import single, store
from .launch import launch


def contiguous(*arrays: Any) -> list:
    """The arrays in C order; None stays None."""
    return [None if a is None else np.ascontiguousarray(a, like=a) for a in arrays]


@triton.jit
def moments_of(x, inside, size):
    """The means of rows with `size` elements inside, and the sums of their squared distances from it."""
    mean = tl.sum(x, axis=1, keep_dims=True) / size
    centred = tl.where(inside, x - mean, 0.0)
    return mean, tl.sum(centred * centred, axis=1, keep_dims=True)


@triton.jit
def with_residual(x, residual_ptr, total_ptr, at, inside, KEEP: tl.constexpr):
    """x + residual, rounded to the dtype in which it is kept: backward starts from there."""
    total = (x + single(residual_ptr, at, inside)).to(total_ptr.dtype.element_ty)
    if KEEP:
        tl.store(total_ptr + at, total, mask=inside)
    return total.to(tl.float32)


@triton.jit
def merged(mean, squares, size, other_mean, other_squares, other_size):
    """The moments of two sets together: T. Chan, G. Golub & R. LeVeque, 1979, equation 2.1."""
    share = other_size / (size + other_size)
    apart = other_mean - mean
    return mean + apart * share, squares + other_squares + apart * apart * (size * share)


@triton.jit
def _column_sums(parts_ptr, out_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        sums += single(parts_ptr, row.to(tl.int64) * n + column, (row < rows) & (column < n))
    out = tl.sum(sums, axis=0, keep_dims=True)
    store(out_ptr, column, out, column < n)


def dtypes_of(*parameters: Any | None) -> list:
    """The dtypes of parameters, None for None: all that backward needs to know of a bias."""
    return [None if p is None else p.dtype for p in parameters]


def column_sums(parts: Any | None, dtype: Any | None) -> Any | None:
    """The sums of the columns of a matrix of float32, in a dtype; None for None."""
    if dtype is None:
        return None
    rows, n = parts.shape
    if not parts.size:
        return np.zeros(n, dtype, like=parts)
    out = np.empty(n, dtype, like=parts)
    height = min(64, triton.next_power_of_2(rows))
    block = 2048 // height
    launch(_column_sums, (triton.cdiv(n, block),), parts, out, rows, n, ROWS=height, BLOCK=block, num_warps=4)
    return out
