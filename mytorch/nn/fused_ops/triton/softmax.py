"""
Softmax and its logarithm along the last dim, perhaps of masked rows: each program computes a tile of whole
rows; where a row is too long for that, it passes twice over one row.

A softmax moves data and computes little, so what counts is that each element is read and written once. What
doesn't count isn't read at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...functional.composite import Unsupported
from ...functional.masked_softmax import mask_rows, masked_log_softmax, masked_softmax
from ...functional.softmax import log_softmax, softmax
from .launch import launch, require_dtypes
from .tune import tuned

LONGEST = 16384  # elements of a row that one program can hold in registers
_TILE = 4096


@triton.jit
def _counting(inside, row, column, n, mask_ptr, which, causal, CAUSAL: tl.constexpr):
    """Which elements inside of x count: in a run of `causal` rows, the i-th ends with column i; and a row has
    the mask of number `which`."""
    if CAUSAL:
        inside &= column <= row.to(tl.int32) % causal  # a remainder of 64 bits is slow
    if mask_ptr is not None:
        inside &= tl.load(mask_ptr + which * n + column, mask=inside, other=0) != 0
    return inside


@triton.jit
def _forward(
    x_ptr, y_ptr, mask_ptr, which_ptr, causal, count, n,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LOG: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """ROWS whole rows of x, (count, n)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (column < n)
    which = 0 if mask_ptr is None else tl.load(which_ptr + row, mask=row < count, other=0)
    counts = _counting(inside, row, column, n, mask_ptr, which, causal, CAUSAL)
    at = row * n + column
    x = tl.load(x_ptr + at, mask=counts, other=-float("inf")).to(tl.float32)
    x -= tl.max(x, axis=1, keep_dims=True)
    power = tl.exp(x)
    total = tl.sum(power, axis=1, keep_dims=True)
    y = x - tl.log(total) if LOG else power / total
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    y_ptr, g_ptr, d_ptr, mask_ptr, which_ptr, causal, count, n,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LOG: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """y * (g - sum(g * y)), or for the logarithm g - exp(y) * sum(g), where elements count."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (column < n)
    which = 0 if mask_ptr is None else tl.load(which_ptr + row, mask=row < count, other=0)
    counts = _counting(inside, row, column, n, mask_ptr, which, causal, CAUSAL)
    at = row * n + column
    y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    total = tl.sum(g if LOG else g * y, axis=1, keep_dims=True)
    d = g - tl.exp(y) * total if LOG else y * (g - total)
    tl.store(d_ptr + at, tl.where(counts, d, 0.0).to(d_ptr.dtype.element_ty), mask=inside)


_LONG = [{"BLOCK": 2048, "num_warps": 8}, {"BLOCK": 4096, "num_warps": 16}]


@tuned(_LONG, key=("n",))
@triton.jit
def _forward_long(
    x_ptr, y_ptr, mask_ptr, which_ptr, causal, n, BLOCK: tl.constexpr, LOG: tl.constexpr, CAUSAL: tl.constexpr
):
    """One row, whose maximum and sum of powers are brought up to date block by block."""
    row = tl.program_id(0).to(tl.int64)
    which = 0 if mask_ptr is None else tl.load(which_ptr + row)
    block = tl.arange(0, BLOCK)
    largest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        column = start + block
        counts = _counting(column < n, row, column, n, mask_ptr, which, causal, CAUSAL)
        x = tl.load(x_ptr + row * n + column, mask=counts, other=-float("inf")).to(tl.float32)
        before, largest = largest, tl.maximum(largest, tl.max(x, axis=0))
        shift = tl.where(largest == -float("inf"), 0.0, largest)  # nothing but -inf so far: not NaN yet
        total = total * tl.exp(before - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n, BLOCK):
        column = start + block
        counts = _counting(column < n, row, column, n, mask_ptr, which, causal, CAUSAL)
        x = tl.load(x_ptr + row * n + column, mask=counts, other=-float("inf")).to(tl.float32) - largest
        y = x - tl.log(total) if LOG else tl.exp(x) / total
        tl.store(y_ptr + row * n + column, y.to(y_ptr.dtype.element_ty), mask=column < n)


@tuned(_LONG, key=("n",))
@triton.jit
def _backward_long(
    y_ptr, g_ptr, d_ptr, mask_ptr, which_ptr, causal, n,
    BLOCK: tl.constexpr, LOG: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One row of `_backward`."""
    row = tl.program_id(0).to(tl.int64)
    which = 0 if mask_ptr is None else tl.load(which_ptr + row)
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
        counts = _counting(column < n, row, column, n, mask_ptr, which, causal, CAUSAL)
        y = tl.load(y_ptr + row * n + column, mask=counts, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * n + column, mask=counts, other=0.0).to(tl.float32)
        d = g - tl.exp(y) * total if LOG else y * (g - total)
        d = tl.where(counts, d, 0.0)
        tl.store(d_ptr + row * n + column, d.to(d_ptr.dtype.element_ty), mask=column < n)


@softmax.fused("cuda")
def _softmax(x, dim, _stacklevel, dtype):
    return _last(x, dim, log=False)


@log_softmax.fused("cuda")
def _log_softmax(x, dim, _stacklevel, dtype):
    return _last(x, dim, log=True)


@masked_softmax.fused("cuda")
def _masked_softmax(x, mask, is_causal):
    return _both(x, mask, is_causal, log=False)


@masked_log_softmax.fused("cuda")
def _masked_log_softmax(x, mask, is_causal):
    return _both(x, mask, is_causal, log=True)


def _last(x: Any, dim: int, log: bool) -> tuple:
    if x.ndim and dim != x.ndim - 1:
        raise Unsupported(f"dim {dim} of {x.ndim}: the kernel is for the last one")
    return _both(x, None, False, log)


def _both(x: Any, mask: Any, is_causal: bool, log: bool) -> tuple:
    require_dtypes(x)
    masks, which = (None, None) if mask is None else mask_rows(mask, x.shape)
    masks = None if masks is None else masks.view(np.uint8)
    causal = x.shape[-2] if is_causal else 0
    y = np.empty_like(x, order="C")
    _launch(_forward, _forward_long, [np.ascontiguousarray(x, like=x), y], masks, which, causal, log)

    def grad(g):
        d = np.empty_like(y)
        arrays = [y, np.ascontiguousarray(g, like=g), d]
        _launch(_backward, _backward_long, arrays, masks, which, causal, log)
        return d

    return y, grad


def _launch(tiles: Any, long: Any, arrays: list, masks: Any, which: Any, causal: int, log: bool) -> None:
    """The kernel for rows of this length, on contiguous arrays of one size."""
    if not arrays[-1].size:
        return
    n = arrays[-1].shape[-1] if arrays[-1].ndim else 1
    count = arrays[-1].size // n
    flags = {"LOG": log, "CAUSAL": causal > 0}
    if n > LONGEST:
        launch(long, (count,), *arrays, masks, which, causal, n, **flags)
        return
    block = triton.next_power_of_2(n)
    height = min(max(1, _TILE // block), triton.next_power_of_2(count))
    warps = min(16, max(1, height * block // 512))
    launch(tiles, (triton.cdiv(count, height),), *arrays, masks, which, causal, count, n,
           ROWS=height, BLOCK=block, num_warps=warps, **flags)  # fmt: skip
