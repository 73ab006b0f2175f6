"""
Softmax and its logarithm along the last dim: each program computes a tile of whole rows; where a row is too
long for that, a program passes twice over one row.

Softmax is bound by memory bandwidth: each element is read and written once.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ....backends.device import RawArray
from ...functional.composite import Unsupported
from ...functional.softmax import log_softmax, softmax
from .launch import launch, require_dtypes
from .sizes import cdiv, next_power_of_2
from .tune import Tuned, tuned

LONGEST = 16384  # elements of a row that one program can hold in registers
_TILE = 4096


@triton.jit
def _forward(x_ptr, y_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr, LOG: tl.constexpr):
    """ROWS whole rows of x, (rows, n)."""
    # Shapes: x, y (rows, n)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < n)
    at = row * n + column
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf")).to(tl.float32)
    x -= tl.max(x, axis=1, keep_dims=True)
    exp = tl.exp(x)
    total = tl.sum(exp, axis=1, keep_dims=True)
    y = x - tl.log(total) if LOG else exp / total
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(y_ptr, g_ptr, dx_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr, LOG: tl.constexpr):
    """dx = y (g - sum(g y)), or for the logarithm g - exp(y) sum(g)."""
    # Shapes: y, g, dx (rows, n)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < n)
    at = row * n + column
    y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    total = tl.sum(g if LOG else g * y, axis=1, keep_dims=True)
    dx = g - tl.exp(y) * total if LOG else y * (g - total)
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)


_LONG = [{"BLOCK": 2048, "num_warps": 8}, {"BLOCK": 4096, "num_warps": 16}]


@tuned(_LONG, key=("n",))
@triton.jit
def _forward_long(x_ptr, y_ptr, n, BLOCK: tl.constexpr, LOG: tl.constexpr):
    """One row, whose maximum and sum of exponentials are updated block by block."""
    # Shapes: x, y (rows, n)
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCK)
    largest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        column = start + block
        x = tl.load(x_ptr + row * n + column, mask=column < n, other=-float("inf")).to(tl.float32)
        before, largest = largest, tl.maximum(largest, tl.max(x, axis=0))
        shift = tl.where(largest == -float("inf"), 0.0, largest)  # all -inf so far: not NaN yet
        total = total * tl.exp(before - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n, BLOCK):
        column = start + block
        x = tl.load(x_ptr + row * n + column, mask=column < n, other=-float("inf")).to(tl.float32) - largest
        y = x - tl.log(total) if LOG else tl.exp(x) / total
        tl.store(y_ptr + row * n + column, y.to(y_ptr.dtype.element_ty), mask=column < n)


@tuned(_LONG, key=("n",))
@triton.jit
def _backward_long(y_ptr, g_ptr, dx_ptr, n, BLOCK: tl.constexpr, LOG: tl.constexpr):
    """One row of `_backward`."""
    # Shapes: y, g, dx (rows, n)
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + block
        g = tl.load(g_ptr + row * n + column, mask=column < n, other=0.0).to(tl.float32)
        if not LOG:
            g *= tl.load(y_ptr + row * n + column, mask=column < n, other=0.0).to(tl.float32)
        sums += g
    total = tl.sum(sums, axis=0)
    for start in range(0, n, BLOCK):
        column = start + block
        y = tl.load(y_ptr + row * n + column, mask=column < n, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * n + column, mask=column < n, other=0.0).to(tl.float32)
        dx = g - tl.exp(y) * total if LOG else y * (g - total)
        tl.store(dx_ptr + row * n + column, dx.to(dx_ptr.dtype.element_ty), mask=column < n)


@softmax.fused("cuda")
def _softmax(x, dim, _stacklevel, dtype):
    return _variant(x, dim, log=False)


@log_softmax.fused("cuda")
def _log_softmax(x, dim, _stacklevel, dtype):
    return _variant(x, dim, log=True)


def _variant(x: RawArray, dim: int, log: bool) -> tuple:
    if x.ndim and dim != x.ndim - 1:
        raise Unsupported(f"dim {dim} of {x.ndim}: the kernel is for the last one")
    require_dtypes(x)
    y = np.empty_like(x, order="C")
    _launch(_forward, _forward_long, [np.ascontiguousarray(x, like=x), y], log)

    def vjp(g):
        dx = np.empty_like(y)
        _launch(_backward, _backward_long, [y, np.ascontiguousarray(g, like=g), dx], log)
        return dx

    return y, vjp


def _launch(tiles: JITFunction, long: Tuned, arrays: list[RawArray], log: bool) -> None:
    """Launches the kernel for rows of this length, on contiguous arrays of one size."""
    if not arrays[-1].size:
        return
    n = arrays[-1].shape[-1] if arrays[-1].ndim else 1
    rows = arrays[-1].size // n
    if n > LONGEST:
        launch(long, (rows,), *arrays, n, LOG=log)
        return
    block = next_power_of_2(n)
    height = min(max(1, _TILE // block), next_power_of_2(rows))
    warps = min(16, max(1, height * block // 512))
    launch(tiles, (cdiv(rows, height),), *arrays, rows, n,
           ROWS=height, BLOCK=block, num_warps=warps, LOG=log)
