"""
The two passes over images, (N, C, L), of batch norm and of group norm's backward: the first computes sums of
every row (a channel of a sample), the second the result from the sums over a channel or a group.

In batch norm statistics are those of a channel (PER_CHANNEL), in group norm of `channels` adjacent rows.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from .elementwise import load32, store, tile
from .launch import launch
from .moments import merge, moments_of
from .sizes import cdiv, next_power_of_2

_TILE = _BLOCK = 1024


@triton.jit
def _row_moments(x_ptr, mean_ptr, squares_ptr, count, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of each row, and the sum of the squared distances from it."""
    # Shapes: x (count, length); mean, squares (count,)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    mean = tl.zeros((ROWS, 1), tl.float32)
    squares = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, length, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = (row < count) & (column < length), row * length + column
        size = tl.minimum(length - start, BLOCK)
        block_mean, block_squares = moments_of(load32(x_ptr, at, inside), inside, size)
        mean, squares = merge(mean, squares, start, block_mean, block_squares, size)
    tl.store(mean_ptr + row, mean, mask=row < count)
    tl.store(squares_ptr + row, squares, mask=row < count)


@triton.jit
def _row_sums(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr, count, length, channels,
    PER_CHANNEL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The sums of dy x_hat and of dy of each row."""
    # Shapes: dy, x (count, length); mean, rstd (channels,) or, without PER_CHANNEL, (count / channels,);
    # dweight, dbias (count,)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    exists = row < count
    statistic = row % channels if PER_CHANNEL else row // channels
    mean = tl.load(mean_ptr + statistic, mask=exists, other=0.0)
    rstd = tl.load(rstd_ptr + statistic, mask=exists, other=0.0)
    dweight = tl.zeros((ROWS, BLOCK), tl.float32)
    dbias = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, length, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside, at = exists & (column < length), row * length + column
        dy = load32(dy_ptr, at, inside)
        dweight += dy * tl.where(inside, (load32(x_ptr, at, inside) - mean) * rstd, 0.0)
        dbias += dy
    tl.store(dweight_ptr + row, tl.sum(dweight, axis=1, keep_dims=True), mask=exists)
    tl.store(dbias_ptr + row, tl.sum(dbias, axis=1, keep_dims=True), mask=exists)


@triton.jit
def _scale(
    x_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, y_ptr, count, length, channels,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = (x - mean) rstd weight + bias, of each channel."""
    # Shapes: x, y (count, length); mean, rstd, weight, bias (channels,)
    row, column, inside = tile(count, length, ROWS, BLOCK)
    at, exists, channel = row * length + column, row < count, row % channels
    scale = load32(rstd_ptr, channel, exists)
    if weight_ptr is not None:
        scale *= load32(weight_ptr, channel, exists)
    y = (load32(x_ptr, at, inside) - load32(mean_ptr, channel, exists)) * scale
    if bias_ptr is not None:
        y += load32(bias_ptr, channel, exists)
    store(y_ptr, at, y, inside)


@triton.jit
def _input_gradient(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, weight_ptr, sum_dxhat_ptr, sum_d_ptr, dx_ptr, count, length,
    channels, all_channels, inv_n, PER_CHANNEL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """dx = rstd (d - mean(d) - x_hat mean(d x_hat)) with d = dy weight.

    The sums of d and d x_hat are those of a group, or of a channel without the weight. None: the mean and the
    variance don't depend on x.
    """
    # Shapes: dy, x, dx (count, length);
    # mean, rstd, sum_dxhat, sum_d (channels,) or, without PER_CHANNEL, (count / channels,);
    # weight (all_channels,)
    row, column, inside = tile(count, length, ROWS, BLOCK)
    at, exists = row * length + column, row < count
    statistic = row % channels if PER_CHANNEL else row // channels
    rstd = load32(rstd_ptr, statistic, exists)
    weight = tl.full((ROWS, 1), 1.0, tl.float32)
    if weight_ptr is not None:
        weight = load32(weight_ptr, row % all_channels, exists)
    dx = load32(dy_ptr, at, inside) * weight
    if sum_dxhat_ptr is not None:
        x_hat = (load32(x_ptr, at, inside) - load32(mean_ptr, statistic, exists)) * rstd
        factor = inv_n * weight if PER_CHANNEL else inv_n
        sum_dxhat, sum_d = load32(sum_dxhat_ptr, statistic, exists), load32(sum_d_ptr, statistic, exists)
        dx -= factor * (sum_d + x_hat * sum_dxhat)
    store(dx_ptr, at, dx * rstd, inside)


def row_moments(x: RawArray) -> tuple[RawArray, RawArray]:
    """Returns the means and the sums of squared distances of the rows of (N, C, L), each (N, C)."""
    rows, length = x.shape[0] * x.shape[1], x.shape[2]
    moments = _per_row(x)
    launch(_row_moments, (cdiv(rows, _height(length)),), x, *moments, rows, length, **_tile(length))
    return moments


def row_sums(
    dy: RawArray, x: RawArray, mean: RawArray, rstd: RawArray, channels: int, per_channel: bool
) -> tuple[RawArray, RawArray]:
    """Returns the sums of dy x_hat and dy of every row of (N, C, L), each (N, C)."""
    rows, length = x.shape[0] * x.shape[1], x.shape[2]
    sums = _per_row(x)
    launch(_row_sums, (cdiv(rows, _height(length)),), dy, x, mean, rstd, *sums, rows, length, channels,
           PER_CHANNEL=per_channel, **_tile(length))
    return sums


def scale(
    x: RawArray, mean: RawArray, rstd: RawArray, weight: RawArray | None, bias: RawArray | None
) -> RawArray:
    """Returns y for (N, C, L), see `_scale`."""
    y = np.empty_like(x)
    arrays = x, mean, rstd, weight, bias, y
    launch(_scale, _grid(x), *arrays, x.shape[0] * x.shape[1], x.shape[2], x.shape[1], **_tile(x.shape[2]))
    return y


def input_gradient(
    dy: RawArray, x: RawArray, mean: RawArray, rstd: RawArray, weight: RawArray | None,
    sum_dxhat: RawArray | None, sum_d: RawArray | None, inv_n: float, channels: int, per_channel: bool,
) -> RawArray:
    """Returns dx for (N, C, L), see `_input_gradient`."""
    dx = np.empty_like(x)
    arrays = dy, x, mean, rstd, weight, sum_dxhat, sum_d, dx
    launch(_input_gradient, _grid(x), *arrays, x.shape[0] * x.shape[1], x.shape[2], channels, x.shape[1],
           inv_n, PER_CHANNEL=per_channel, **_tile(x.shape[2]))
    return dx


def _per_row(x: RawArray) -> tuple[RawArray, RawArray]:
    return tuple(np.empty(x.shape[:2], np.float32, like=x) for _ in range(2))


def _tile(length: int) -> dict:
    block = min(_BLOCK, next_power_of_2(max(length, 1)))
    return {"ROWS": _TILE // block, "BLOCK": block, "num_warps": 4}


def _height(length: int) -> int:
    return _tile(length)["ROWS"]


def _grid(x: RawArray) -> tuple[int]:
    samples, channels, length = x.shape
    options = _tile(length)
    return (cdiv(samples * channels, options["ROWS"]) * cdiv(length, options["BLOCK"]),)
