"""
The two passes over images, (N, C, L), of batch norm and of group norm's backward: the sums of every row, a
channel of a sample, and then the result, once it is known what the sums add up to.

In batch norm statistics are those of a channel (PER_CHANNEL), in group norm of `channels` rows side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from .elementwise import single, store, tile
from .launch import launch
from .moments import merged, moments_of, with_residual

_TILE = _BLOCK = 1024


@triton.jit
def _row_moments(
    x_ptr, residual_ptr, total_ptr, mean_ptr, squares_ptr, count, length, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The mean of each row, and the sum of the squared distances from it, of x or of x + residual."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    mean = tl.zeros((ROWS, 1), tl.float32)
    squares = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, length, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = (row < count) & (column < length), row * length + column
        x = single(x_ptr, at, inside)
        if residual_ptr is not None:
            x = with_residual(x, residual_ptr, total_ptr, at, inside, True)
        size = tl.minimum(length - start, BLOCK)
        of_block, squares_of_block = moments_of(x, inside, size)
        mean, squares = merged(mean, squares, start, of_block, squares_of_block, size)
    tl.store(mean_ptr + row, mean, mask=row < count)
    tl.store(squares_ptr + row, squares, mask=row < count)


@triton.jit
def _row_sums(
    g_ptr, x_ptr, mean_ptr, rstd_ptr, of_weight_ptr, of_bias_ptr, count, length, channels,
    PER_CHANNEL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of g x_hat and of g of each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    there = row < count
    statistic = row % channels if PER_CHANNEL else row // channels
    mean = tl.load(mean_ptr + statistic, mask=there, other=0.0)
    rstd = tl.load(rstd_ptr + statistic, mask=there, other=0.0)
    of_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, length, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = there & (column < length), row * length + column
        g = single(g_ptr, at, inside)
        of_weight += g * tl.where(inside, (single(x_ptr, at, inside) - mean) * rstd, 0.0)
        of_bias += g
    tl.store(of_weight_ptr + row, tl.sum(of_weight, axis=1, keep_dims=True), mask=there)
    tl.store(of_bias_ptr + row, tl.sum(of_bias, axis=1, keep_dims=True), mask=there)


@triton.jit
def _scale(
    x_ptr, residual_ptr, total_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, y_ptr, count, length, channels,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = (x - mean) rstd weight + bias, of each channel, of x or of x + residual."""
    row, column, inside = tile(count, length, ROWS, BLOCK)
    at, there, channel = row * length + column, row < count, row % channels
    x = single(x_ptr, at, inside)
    if residual_ptr is not None:
        x = with_residual(x, residual_ptr, total_ptr, at, inside, True)
    scale = single(rstd_ptr, channel, there)
    if weight_ptr is not None:
        scale *= single(weight_ptr, channel, there)
    y = (x - single(mean_ptr, channel, there)) * scale
    if bias_ptr is not None:
        y += single(bias_ptr, channel, there)
    store(y_ptr, at, y, inside)


@triton.jit
def _gradient(
    g_ptr, of_total_ptr, x_ptr, mean_ptr, rstd_ptr, weight_ptr, along_ptr, level_ptr, dx_ptr, count, length,
    channels, all_channels, share, PER_CHANNEL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx = rstd (d - share (level + x_hat along)) + of_total with d = g weight; see `normalization`.

    The sums are those of g and g x_hat in a channel, or of d and d x_hat in a group. None: the mean and the
    variance don't depend on x.
    """
    row, column, inside = tile(count, length, ROWS, BLOCK)
    at, there = row * length + column, row < count
    statistic = row % channels if PER_CHANNEL else row // channels
    rstd = single(rstd_ptr, statistic, there)
    weight = tl.full((ROWS, 1), 1.0, tl.float32)
    if weight_ptr is not None:
        weight = single(weight_ptr, row % all_channels, there)
    dx = single(g_ptr, at, inside) * weight
    if along_ptr is not None:
        x_hat = (single(x_ptr, at, inside) - single(mean_ptr, statistic, there)) * rstd
        factor = share * weight if PER_CHANNEL else share
        dx -= factor * (single(level_ptr, statistic, there) + x_hat * single(along_ptr, statistic, there))
    dx *= rstd
    if of_total_ptr is not None:
        dx += single(of_total_ptr, at, inside)
    store(dx_ptr, at, dx, inside)


def row_moments(x: Any, residual: Any | None) -> tuple[Any, Any, Any]:
    """(sum, means, squared distances) of the rows of (N, C, L), or of x + residual, which then is the sum."""
    rows, length = x.shape[0] * x.shape[1], x.shape[2]
    total = x if residual is None else np.empty_like(x)
    mean, squares = _of_rows(x)
    arrays = x, residual, total, mean, squares
    launch(_row_moments, (triton.cdiv(rows, _height(length)),), *arrays, rows, length, **_tile(length))
    return total, mean, squares


def row_sums(g: Any, x: Any, mean: Any, rstd: Any, channels: int, per_channel: bool) -> tuple[Any, Any]:
    """The sums of g x_hat and g of every row of (N, C, L), each (N, C)."""
    rows, length = x.shape[0] * x.shape[1], x.shape[2]
    sums = _of_rows(x)
    launch(_row_sums, (triton.cdiv(rows, _height(length)),), g, x, mean, rstd, *sums, rows, length, channels,
           PER_CHANNEL=per_channel, **_tile(length))  # fmt: skip
    return sums


def scale(x: Any, residual: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """(y, sum) of (N, C, L), see `_scale`."""
    y, total = np.empty_like(x), x if residual is None else np.empty_like(x)
    arrays = x, residual, total, mean, rstd, weight, bias, y
    launch(_scale, _grid(x), *arrays, x.shape[0] * x.shape[1], x.shape[2], x.shape[1], **_tile(x.shape[2]))
    return y, total


def gradient(
    g: Any, of_total: Any, x: Any, mean: Any, rstd: Any, weight: Any, along: Any, level: Any, share: float,
    channels: int, per_channel: bool,
) -> Any:  # fmt: skip
    """dx for (N, C, L), see `_gradient`."""
    dx = np.empty_like(x)
    arrays = g, of_total, x, mean, rstd, weight, along, level, dx
    launch(_gradient, _grid(x), *arrays, x.shape[0] * x.shape[1], x.shape[2], channels, x.shape[1], share,
           PER_CHANNEL=per_channel, **_tile(x.shape[2]))  # fmt: skip
    return dx


def _of_rows(x: Any) -> tuple[Any, Any]:
    return tuple(np.empty(x.shape[:2], np.float32, like=x) for _ in range(2))


def _tile(length: int) -> dict:
    block = min(_BLOCK, triton.next_power_of_2(max(length, 1)))
    return {"ROWS": _TILE // block, "BLOCK": block, "num_warps": 4}


def _height(length: int) -> int:
    return _tile(length)["ROWS"]


def _grid(x: Any) -> tuple[int]:
    samples, channels, length = x.shape
    options = _tile(length)
    return (triton.cdiv(samples * channels, options["ROWS"]) * triton.cdiv(length, options["BLOCK"]),)
