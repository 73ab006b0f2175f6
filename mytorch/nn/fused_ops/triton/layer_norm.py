"""
Layer norm, optionally after an addition, and RMS norm, which is the same without a mean.

A program has whole rows in its registers, a few short ones or one long one: forward and backward read and
write each element once. The gradients of weight and bias are sums over rows, so in backward a program loops
over many rows and writes partial sums; `column_sums` adds these up, always in the same order. Rows that are
too long for that take two passes, block by block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ..layer_norm import register
from .elementwise import load32, store
from .launch import chip, launch, require_dtypes
from .moments import centre, column_sums, contiguous, dtypes_of, merge, moments_of
from .sizes import cdiv, next_power_of_2

LONGEST, LONGEST_BACKWARD = 16384, 8192  # elements of a row that a program can hold
_TILE, _LONG_BLOCK, _ROWS_OF_PARTIAL = 2048, 2048, 16


@triton.jit
def _add_residual(x, residual_ptr, total_ptr, at, inside, STORE: tl.constexpr):
    """x + residual, rounded to the dtype in which it is stored, since backward starts from that."""
    # Shapes: residual, total (count, n)
    total = (x + load32(residual_ptr, at, inside)).to(total_ptr.dtype.element_ty)
    if STORE:
        tl.store(total_ptr + at, total, mask=inside)
    return total.to(tl.float32)


@triton.jit
def _forward(
    x_ptr, residual_ptr, total_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, count, n, groups, length,
    eps, CENTRED: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """ROWS whole rows of x, (count, n); see `_parameters`."""
    # Shapes: x, residual, total, y (count, n); weight, bias (n,) or, with CHANNELS, (groups * n / length,);
    # mean, rstd (count,)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (column < n)
    at = row * n + column
    x = load32(x_ptr, at, inside)
    if residual_ptr is not None:
        x = _add_residual(x, residual_ptr, total_ptr, at, inside, True)
    mean, centred = tl.zeros((ROWS, 1), tl.float32), x
    if CENTRED:
        mean, centred = centre(x, inside, n, 1)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / n + eps)
    tl.store(mean_ptr + row, mean, mask=row < count)
    tl.store(rstd_ptr + row, rstd, mask=row < count)
    weight, bias = _parameters(weight_ptr, bias_ptr, row, column, n, groups, length, CHANNELS)
    store(y_ptr, at, centred * rstd * weight + bias, inside)


@triton.jit
def _parameters(weight_ptr, bias_ptr, row, column, n, groups, length, CHANNELS: tl.constexpr):
    """Weight and bias of elements: of their columns, or of their channels. A channel has `length` columns;
    the next row has the next channels, and after `groups` rows they repeat."""
    # Shapes: weight, bias (n,) or, with CHANNELS, (groups * n / length,)
    at, inside = column, column < n
    if CHANNELS:
        at = (row % groups) * (n // length) + column // length
    weight = 1.0
    if weight_ptr is not None:
        weight = load32(weight_ptr, at, inside)
    bias = 0.0
    if bias_ptr is not None:
        bias = load32(bias_ptr, at, inside)
    return weight, bias


@triton.jit
def _forward_long(
    x_ptr, residual_ptr, total_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, n, groups, length, eps,
    CENTRED: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):
    """One row of `_forward`."""
    # Shapes: x, residual, total, y (count, n); weight, bias (n,) or, with CHANNELS, (groups * n / length,);
    # mean, rstd (count,)
    row = tl.program_id(0).to(tl.int64)
    mean = tl.zeros((1, 1), tl.float32)
    squares = tl.zeros((1, 1), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = column < n, row * n + column
        x = load32(x_ptr, at, inside)
        if residual_ptr is not None:
            x = _add_residual(x, residual_ptr, total_ptr, at, inside, True)
        if CENTRED:
            size = tl.minimum(n - start, BLOCK)
            block_mean, block_squares = moments_of(x, inside, size)
            mean, squares = merge(mean, squares, start, block_mean, block_squares, size)
        else:
            squares += tl.sum(x * x, axis=1, keep_dims=True)
    rstd = 1 / tl.sqrt(squares / n + eps)
    statistic = tl.zeros((1, 1), tl.int64) + row
    tl.store(mean_ptr + statistic, mean)
    tl.store(rstd_ptr + statistic, rstd)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = column < n, row * n + column
        x = load32(x_ptr, at, inside)
        if residual_ptr is not None:
            x = _add_residual(x, residual_ptr, total_ptr, at, inside, False)
        weight, bias = _parameters(weight_ptr, bias_ptr, row, column, n, groups, length, CHANNELS)
        store(y_ptr, at, (x - mean) * rstd * weight + bias, inside)


@triton.jit
def _backward(
    dy_ptr, dtotal_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr, dx_ptr, count, n,
    tiles, CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of `tiles` times ROWS rows, and the sums of dy x_hat and dy over them."""
    # Shapes: dy, dtotal, x, dx (count, n); weight (n,); mean, rstd (count,); dweight, dbias (programs, n)
    column = tl.arange(0, BLOCK)[None, :]
    weight = 1.0
    if weight_ptr is not None:
        weight = load32(weight_ptr, column, column < n)
    dweight = tl.zeros((ROWS, BLOCK), tl.float32)
    dbias = tl.zeros((ROWS, BLOCK), tl.float32)
    program = tl.program_id(0).to(tl.int64)
    for tile in range(0, tiles):
        row = (program * tiles + tile) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < count) & (column < n)
        at = row * n + column
        mean = tl.load(mean_ptr + row, mask=row < count, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < count, other=0.0)
        dy = load32(dy_ptr, at, inside)
        x_hat = tl.where(inside, (load32(x_ptr, at, inside) - mean) * rstd, 0.0)
        dweight += dy * x_hat
        dbias += dy
        d = dy * weight
        dx = d - x_hat * (tl.sum(d * x_hat, axis=1, keep_dims=True) / n)
        if CENTRED:
            dx -= tl.sum(d, axis=1, keep_dims=True) / n
        dx *= rstd
        if dtotal_ptr is not None:
            dx += load32(dtotal_ptr, at, inside)
        store(dx_ptr, at, dx, inside)
    column = tl.arange(0, BLOCK)
    if dweight_ptr is not None:
        tl.store(dweight_ptr + program * n + column, tl.sum(dweight, axis=0), mask=column < n)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + program * n + column, tl.sum(dbias, axis=0), mask=column < n)


@triton.jit
def _backward_long(
    dy_ptr, dtotal_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, n, CENTRED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of one row."""
    # Shapes: dy, dtotal, x, dx (count, n); weight (n,); mean, rstd (count,)
    row = tl.program_id(0).to(tl.int64)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    sum_dxhat = tl.zeros((BLOCK,), tl.float32)
    sum_d = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        d, x_hat = _d_and_x_hat(dy_ptr, x_ptr, weight_ptr, mean, rstd, row, column, n)
        sum_dxhat += d * x_hat
        sum_d += d
    mean_dxhat = tl.sum(sum_dxhat, axis=0) / n
    mean_d = tl.sum(sum_d, axis=0) / n if CENTRED else 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        d, x_hat = _d_and_x_hat(dy_ptr, x_ptr, weight_ptr, mean, rstd, row, column, n)
        dx = (d - mean_d - x_hat * mean_dxhat) * rstd
        if dtotal_ptr is not None:
            dx += load32(dtotal_ptr, row * n + column, column < n)
        store(dx_ptr, row * n + column, dx, column < n)


@triton.jit
def _d_and_x_hat(dy_ptr, x_ptr, weight_ptr, mean, rstd, row, column, n):
    # Shapes: dy, x (count, n); weight (n,)
    inside, at = column < n, row * n + column
    d = load32(dy_ptr, at, inside)
    if weight_ptr is not None:
        d *= load32(weight_ptr, column, inside)
    return d, tl.where(inside, (load32(x_ptr, at, inside) - mean) * rstd, 0.0)


@triton.jit
def _partials_long(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr, count, n, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sums of dy x_hat and dy over ROWS rows, of a block of columns."""
    # Shapes: dy, x (count, n); mean, rstd (count,); dweight, dbias (count / ROWS, n)
    partial = tl.program_id(0).to(tl.int64)  # only the first axis of the grid may be longer than 65535
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dbias = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, tl.minimum(count - partial * ROWS, ROWS)):
        row, inside = partial * ROWS + i, column < n
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        dy = load32(dy_ptr, row * n + column, inside)
        x_hat = (load32(x_ptr, row * n + column, inside) - mean) * rstd
        dweight += tl.where(inside, dy * x_hat, 0.0)
        dbias += dy
    if dweight_ptr is not None:
        tl.store(dweight_ptr + partial * n + column, dweight, mask=column < n)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + partial * n + column, dbias, mask=column < n)


def normalize_rows(
    x: RawArray, residual: RawArray | None, weight: RawArray | None, bias: RawArray | None, eps: float,
    count: int, groups: int = 0, length: int = 1, centred: bool = True,
) -> tuple[RawArray, RawArray, RawArray, RawArray]:
    """Returns (y, total, mean, rstd) for contiguous x, or x + residual, as `count` rows.

    Args:
        groups, length: weight and bias are those of channels, see `_parameters`; 0: of columns.
    """
    y = np.empty_like(x)
    total = x if residual is None else np.empty_like(x)
    mean, rstd = (np.empty(count, np.float32, like=x) for _ in range(2))
    n = x.size // max(count, 1)
    arguments = x, residual, total, weight, bias, y, mean, rstd
    options = {"CENTRED": centred, "CHANNELS": groups > 0}
    if x.size and n > LONGEST:
        launch(_forward_long, (count,), *arguments, n, groups, length, eps,
               **options, BLOCK=_LONG_BLOCK, num_warps=8)
    elif x.size:
        block, height, warps = _tile(count, n, 16 if n <= 4096 else 32)  # with more warps some spill
        launch(_forward, (cdiv(count, height),), *arguments, count, n, groups, length, eps,
               **options, ROWS=height, BLOCK=block, num_warps=warps)
    return y, total, mean, rstd


@functools.lru_cache(256)
def _tile(count: int, n: int, per_thread: int) -> tuple[int, int, int]:
    """Returns the columns and rows of a tile, and the warps with about `per_thread` elements a thread."""
    block = next_power_of_2(n)
    height = min(max(1, _TILE // block), next_power_of_2(count))
    return block, height, min(32, max(1, height * block // (32 * per_thread)))


def _normalize(
    x: RawArray, residual: RawArray | None, normalized_shape: Sequence[int], weight: RawArray | None,
    bias: RawArray | None, eps: float, centred: bool,
) -> tuple[RawArray, RawArray, Callable]:
    """See `fused_ops.layer_norm.register`."""
    require_dtypes(x, residual, weight, bias)
    n = math.prod(normalized_shape)
    count = x.size // max(n, 1)
    x, residual, weight, bias = contiguous(x, residual, weight, bias)
    y, total, mean, rstd = normalize_rows(x, residual, weight, bias, eps, count, centred=centred)
    dtypes = dtypes_of(weight, bias)

    def vjp(dy: RawArray, dtotal: RawArray | None) -> tuple:
        dy, dtotal = contiguous(dy, dtotal)
        dx = np.empty_like(total)
        partials = _new_partials(dtypes, 0, n, dx)
        if dx.size:
            backward = _long_rows_backward if n > LONGEST_BACKWARD else _rows_backward
            partials = backward(dy, dtotal, total, weight, dtypes, mean, rstd, dx, count, n, centred)
        sums = (column_sums(partial, dtype) for partial, dtype in zip(partials, dtypes, strict=True))
        return dx, None, *(s if s is None else s.reshape(normalized_shape) for s in sums)

    return y, total, vjp


def _rows_backward(dy, dtotal, x, weight, dtypes, mean, rstd, dx, count, n, centred):
    block, height, warps = _tile(count, n, 8)
    programs = chip().multiprocessors * max(1, 32 // warps)
    tiles = max(cdiv(cdiv(count, height), programs), 2)
    programs = cdiv(count, height * tiles)
    partials = _new_partials(dtypes, programs, n, x)
    launch(_backward, (programs,), dy, dtotal, x, weight, mean, rstd, *partials, dx, count, n, tiles,
           CENTRED=centred, ROWS=height, BLOCK=block, num_warps=warps)
    return partials


def _new_partials(dtypes, programs, n, like):
    """For weight and bias an array with a row for each program's sums, or None."""
    return [None if dtype is None else np.empty((programs, n), np.float32, like=like) for dtype in dtypes]


def _long_rows_backward(dy, dtotal, x, weight, dtypes, mean, rstd, dx, count, n, centred):
    launch(_backward_long, (count,), dy, dtotal, x, weight, mean, rstd, dx, n,
           CENTRED=centred, BLOCK=_LONG_BLOCK, num_warps=8)
    height = cdiv(count, _ROWS_OF_PARTIAL)
    partials = _new_partials(dtypes, height, n, x)
    if any(partial is not None for partial in partials):
        launch(_partials_long, (height, cdiv(n, _LONG_BLOCK)), dy, x, mean, rstd, *partials, count, n,
               ROWS=_ROWS_OF_PARTIAL, BLOCK=_LONG_BLOCK, num_warps=8)
    return partials


register("cuda", _normalize)
