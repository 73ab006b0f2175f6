"""
Layer norm and RMS norm, which is the same without a mean, both perhaps after an addition.

A program has whole rows in its registers, a few short ones or one long one: forward and backward read and
write each element once. The gradients of weight and bias are sums over rows, so in backward a program goes
through many of them and adds up its part; `column_sums` adds up the parts, always in the same order. Rows
that are too long for that take two passes, block by block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...functional.add_norm import add_layer_norm, add_rms_norm
from ...functional.normalization import layer_norm, rms_norm
from ..normalization import register
from .elementwise import single, store
from .launch import chip, launch, require_dtypes
from .moments import column_sums, contiguous, dtypes_of, merged, moments_of, with_residual

LONGEST, LONGEST_BACKWARD = 16384, 8192  # elements of a row that a program can hold
_TILE, _LONG_BLOCK, _ROWS_OF_PART = 2048, 2048, 16


@triton.jit
def _forward(
    x_ptr, residual_ptr, total_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, count, n, groups, length,
    eps, CENTRED: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS whole rows of x, (count, n); see `_parameters`."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (column < n)
    at = row * n + column
    x = single(x_ptr, at, inside)
    if residual_ptr is not None:
        x = with_residual(x, residual_ptr, total_ptr, at, inside, True)
    mean = tl.sum(x, axis=1, keep_dims=True) / n if CENTRED else tl.zeros((ROWS, 1), tl.float32)
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / n + eps)
    tl.store(mean_ptr + row, mean, mask=row < count)
    tl.store(rstd_ptr + row, rstd, mask=row < count)
    weight, bias = _parameters(weight_ptr, bias_ptr, row, column, n, groups, length, CHANNELS)
    store(y_ptr, at, centred * rstd * weight + bias, inside)


@triton.jit
def _parameters(weight_ptr, bias_ptr, row, column, n, groups, length, CHANNELS: tl.constexpr):
    """Weight and bias of elements: of their columns, or of their channels. These are `length` columns each;
    the next row has the next ones, and after `groups` rows they come again."""
    place, inside = column, column < n
    if CHANNELS:
        place = (row % groups) * (n // length) + column // length
    weight = 1.0
    if weight_ptr is not None:
        weight = single(weight_ptr, place, inside)
    bias = 0.0
    if bias_ptr is not None:
        bias = single(bias_ptr, place, inside)
    return weight, bias


@triton.jit
def _forward_long(
    x_ptr, residual_ptr, total_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, n, groups, length, eps,
    CENTRED: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row of `_forward`."""
    row = tl.program_id(0).to(tl.int64)
    mean = tl.zeros((1, 1), tl.float32)
    squares = tl.zeros((1, 1), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = column < n, row * n + column
        x = single(x_ptr, at, inside)
        if residual_ptr is not None:
            x = with_residual(x, residual_ptr, total_ptr, at, inside, True)
        if CENTRED:
            size = tl.minimum(n - start, BLOCK)
            of_block, squares_of_block = moments_of(x, inside, size)
            mean, squares = merged(mean, squares, start, of_block, squares_of_block, size)
        else:
            squares += tl.sum(x * x, axis=1, keep_dims=True)
    rstd = 1 / tl.sqrt(squares / n + eps)
    there = tl.zeros((1, 1), tl.int64) + row
    tl.store(mean_ptr + there, mean)
    tl.store(rstd_ptr + there, rstd)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = column < n, row * n + column
        x = single(x_ptr, at, inside)
        if residual_ptr is not None:
            x = with_residual(x, residual_ptr, total_ptr, at, inside, False)
        weight, bias = _parameters(weight_ptr, bias_ptr, row, column, n, groups, length, CHANNELS)
        store(y_ptr, at, (x - mean) * rstd * weight + bias, inside)


@triton.jit
def _backward(
    g_ptr, of_total_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, of_weight_ptr, of_bias_ptr, dx_ptr, count, n,
    tiles, CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of `tiles` times ROWS rows, and the sums of g x_hat and g over them."""
    column = tl.arange(0, BLOCK)[None, :]
    weight = 1.0
    if weight_ptr is not None:
        weight = single(weight_ptr, column, column < n)
    of_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    program = tl.program_id(0).to(tl.int64)
    for tile in range(0, tiles):
        row = (program * tiles + tile) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < count) & (column < n)
        at = row * n + column
        mean = tl.load(mean_ptr + row, mask=row < count, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < count, other=0.0)
        g = single(g_ptr, at, inside)
        x_hat = tl.where(inside, (single(x_ptr, at, inside) - mean) * rstd, 0.0)
        of_weight += g * x_hat
        of_bias += g
        d = g * weight
        d_x = d - x_hat * (tl.sum(d * x_hat, axis=1, keep_dims=True) / n)
        if CENTRED:
            d_x -= tl.sum(d, axis=1, keep_dims=True) / n
        d_x *= rstd
        if of_total_ptr is not None:
            d_x += single(of_total_ptr, at, inside)
        store(dx_ptr, at, d_x, inside)
    place = program * n + tl.arange(0, BLOCK)
    there = tl.arange(0, BLOCK) < n
    if of_weight_ptr is not None:
        tl.store(of_weight_ptr + place, tl.sum(of_weight, axis=0), mask=there)
    if of_bias_ptr is not None:
        tl.store(of_bias_ptr + place, tl.sum(of_bias, axis=0), mask=there)


@triton.jit
def _backward_long(
    g_ptr, of_total_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, n, CENTRED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of one row."""
    row = tl.program_id(0).to(tl.int64)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    along = tl.zeros((BLOCK,), tl.float32)
    level = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        d, x_hat = _d_and_x_hat(g_ptr, x_ptr, weight_ptr, mean, rstd, row, column, n)
        along += d * x_hat
        level += d
    of_x_hat = tl.sum(along, axis=0) / n
    of_d = tl.sum(level, axis=0) / n if CENTRED else 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        d, x_hat = _d_and_x_hat(g_ptr, x_ptr, weight_ptr, mean, rstd, row, column, n)
        d_x = (d - of_d - x_hat * of_x_hat) * rstd
        if of_total_ptr is not None:
            d_x += single(of_total_ptr, row * n + column, column < n)
        store(dx_ptr, row * n + column, d_x, column < n)


@triton.jit
def _d_and_x_hat(g_ptr, x_ptr, weight_ptr, mean, rstd, row, column, n):
    inside, at = column < n, row * n + column
    d = single(g_ptr, at, inside)
    if weight_ptr is not None:
        d *= single(weight_ptr, column, inside)
    return d, tl.where(inside, (single(x_ptr, at, inside) - mean) * rstd, 0.0)


@triton.jit
def _parts_long(
    g_ptr, x_ptr, mean_ptr, rstd_ptr, of_weight_ptr, of_bias_ptr, count, n, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of g x_hat and g over ROWS rows, of a block of columns."""
    part = tl.program_id(0).to(tl.int64)  # of the axes of programs this one alone may be longer than 65535
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    of_weight = tl.zeros((BLOCK,), tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, tl.minimum(count - part * ROWS, ROWS)):
        row, inside = part * ROWS + i, column < n
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        g = single(g_ptr, row * n + column, inside)
        x_hat = (single(x_ptr, row * n + column, inside) - mean) * rstd
        of_weight += tl.where(inside, g * x_hat, 0.0)
        of_bias += g
    if of_weight_ptr is not None:
        tl.store(of_weight_ptr + part * n + column, of_weight, mask=column < n)
    if of_bias_ptr is not None:
        tl.store(of_bias_ptr + part * n + column, of_bias, mask=column < n)


def normalize_rows(
    x: Any, residual: Any, weight: Any, bias: Any, eps: float, count: int, groups: int = 0, length: int = 1,
    centred: bool = True,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """(y, sum, mean, rstd) of contiguous x, or of x + residual, as so many rows.

    Args:
        groups, length: the parameters are those of channels, see `_parameters`; 0: of columns.
    """
    y = np.empty_like(x)
    total = x if residual is None else np.empty_like(x)
    mean, rstd = (np.empty(count, np.float32, like=x) for _ in range(2))
    n = x.size // max(count, 1)
    arguments = x, residual, total, weight, bias, y, mean, rstd
    options = {"CENTRED": centred, "CHANNELS": groups > 0}
    if x.size and n > LONGEST:
        launch(_forward_long, (count,), *arguments, n, groups, length, eps,
               **options, BLOCK=_LONG_BLOCK, num_warps=8)  # fmt: skip
    elif x.size:
        block, height, warps = _tile(count, n, 16 if n <= 4096 else 32)  # with more warps some spill
        launch(_forward, (triton.cdiv(count, height),), *arguments, count, n, groups, length, eps,
               **options, ROWS=height, BLOCK=block, num_warps=warps)  # fmt: skip
    return y, total, mean, rstd


def _tile(count: int, n: int, of_thread: int) -> tuple[int, int, int]:
    """The columns and rows of a tile, and the warps whose threads have about so many of its elements each."""
    block = triton.next_power_of_2(n)
    height = min(max(1, _TILE // block), triton.next_power_of_2(count))
    return block, height, min(32, max(1, height * block // (32 * of_thread)))


def _normalize(
    x: Any, residual: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float,
    centred: bool = True,
) -> tuple[Any, Any, Callable]:  # fmt: skip
    """See `normalization.register`."""
    require_dtypes(x, residual, weight, bias)
    n = math.prod(normalized_shape)
    count = x.size // max(n, 1)
    x, residual, weight, bias = contiguous(x, residual, weight, bias)
    y, total, mean, rstd = normalize_rows(x, residual, weight, bias, eps, count, centred=centred)
    dtypes = dtypes_of(weight, bias)

    def backward(of_y: Any, of_total: Any) -> tuple:
        g, of_total = contiguous(of_y, of_total)
        dx = np.empty_like(total)
        parts = _parts(dtypes, 0, n, dx)
        if dx.size:
            gradients = _backward_of_long_rows if n > LONGEST_BACKWARD else _backward_of_rows
            parts = gradients(g, of_total, total, weight, dtypes, mean, rstd, dx, count, n, centred)
        sums = (column_sums(part, dtype) for part, dtype in zip(parts, dtypes, strict=True))
        return dx, None, *(s if s is None else s.reshape(normalized_shape) for s in sums)

    return y, total, backward


def _backward_of_rows(g, of_total, x, weight, dtypes, mean, rstd, dx, count, n, centred):
    block, height, warps = _tile(count, n, 8)
    programs = chip().multiprocessors * max(1, 32 // warps)
    tiles = max(triton.cdiv(triton.cdiv(count, height), programs), 2)
    programs = triton.cdiv(count, height * tiles)
    parts = _parts(dtypes, programs, n, x)
    launch(_backward, (programs,), g, of_total, x, weight, mean, rstd, *parts, dx, count, n, tiles,
           CENTRED=centred, ROWS=height, BLOCK=block, num_warps=warps)  # fmt: skip
    return parts


def _parts(dtypes, programs, n, like):
    """A row for what each program adds up, None for a parameter that isn't there."""
    return [None if dtype is None else np.empty((programs, n), np.float32, like=like) for dtype in dtypes]


def _backward_of_long_rows(g, of_total, x, weight, dtypes, mean, rstd, dx, count, n, centred):
    launch(_backward_long, (count,), g, of_total, x, weight, mean, rstd, dx, n,
           CENTRED=centred, BLOCK=_LONG_BLOCK, num_warps=8)  # fmt: skip
    height = triton.cdiv(count, _ROWS_OF_PART)
    parts = _parts(dtypes, height, n, x)
    if any(part is not None for part in parts):
        launch(_parts_long, (height, triton.cdiv(n, _LONG_BLOCK)), g, x, mean, rstd, *parts, count, n,
               ROWS=_ROWS_OF_PART, BLOCK=_LONG_BLOCK, num_warps=8)  # fmt: skip
    return parts


def _without_mean(x, residual, normalized_shape, weight, eps):
    return _normalize(x, residual, normalized_shape, weight, None, eps, False)


register("cuda", layer_norm, add_layer_norm, _normalize)
register("cuda", rms_norm, add_rms_norm, _without_mean)
