"""The norm of a long vector, and its scaling, in a fixed order and without waiting for the GPU."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from .launch import launch, require_dtypes
from .sizes import cdiv

__all__ = ["require_dtypes", "scale", "sum_of_squares"]

BLOCK, SUMS = 4096, 1024


def sum_of_squares(x: RawArray) -> RawArray:
    """Returns the sum of x^2 of a vector, a 0-d float32 array."""
    count = min(cdiv(x.size, BLOCK), SUMS)
    sums, total = (np.empty(n, np.float32, like=x) for n in (count, 1))
    if count:
        launch(_sums_of_squares, (count,), x, sums, x.size, COUNT=count, BLOCK=BLOCK, num_warps=8)
    launch(_sum, (1,), sums, total, count, SUMS=SUMS)
    return total.reshape(())


@triton.jit
def _sums_of_squares(x_ptr, sums_ptr, n, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of every COUNT-th block."""
    # Shapes: x (n,); sums (COUNT,)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, (n - 1) // (COUNT * BLOCK) + 1):  # cdiv() would overflow near 2^31
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        sums += x * x
        at += COUNT * BLOCK
    tl.store(sums_ptr + tl.program_id(0), tl.sum(sums, axis=0))


@triton.jit
def _sum(sums_ptr, total_ptr, count, SUMS: tl.constexpr):
    # Shapes: sums (count,); total (1,)
    i = tl.arange(0, SUMS)
    tl.store(total_ptr, tl.sum(tl.load(sums_ptr + i, mask=i < count, other=0.0), axis=0))


def scale(x: RawArray, factor: float | RawArray) -> None:
    """x *= factor, a float or an array of one float32; a factor of 1 costs little, and zeros stay zero."""
    if isinstance(factor, float):
        factor = np.zeros(1, np.float32, like=x) + np.float32(factor)
    if x.size:
        launch(_scale, (cdiv(x.size, BLOCK),), x, factor, x.size, BLOCK=BLOCK, num_warps=8)


@triton.jit
def _scale(x_ptr, factor_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x (n,); factor (1,)
    factor = tl.load(factor_ptr)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.where(factor == 1.0, 0, n)
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(x == 0.0, x, x * factor)  # a flat vector's padding stays zero even if factor is NaN
    tl.store(x_ptr + at, y.to(x_ptr.dtype.element_ty), mask=inside)
