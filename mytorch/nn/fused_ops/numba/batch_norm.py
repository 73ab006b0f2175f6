"""
Batch norm, perhaps after an addition: channel by channel, in training and with the running statistics.

The input is (samples, channels, length): what a channel has of a sample lies in one piece. Where these pieces
are single numbers, of an input (N, C), a thread takes all channels of some rows instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.jit import device, kernel, prange
from ...functional.add_norm import add_batch_norm
from ...functional.batch_norm import Running, batch_norm
from ..normalization import register
from .moments import (
    ONE,
    SINGLE,
    ZERO,
    add,
    contiguous,
    gradient_of,
    parameters,
    require_single,
    scaled,
    squares_of,
    sum_of,
    sums_of,
)

_CHUNK = 32  # rows whose sums are made in float32 while they are in a near cache
_PARTS = 16  # of all rows, whatever the number of threads: that mustn't change the result


@kernel
def _forward(x, residual, total, weight, bias, eps, training, mean, variance, rstd, y):
    """y = (total - mean) rstd weight + bias; without a residual, `total` is x. In training the mean and the
    variance are written, too."""
    samples, channels, length = x.shape
    for c in prange(channels):
        if residual.size:
            for n in range(samples):
                add(x[n, c], residual[n, c], total[n, c])
        if training:
            whole = 0.0
            for n in range(samples):
                whole += sum_of(total[n, c])
            mean[c] = whole / (samples * length)
            whole = 0.0
            for n in range(samples):
                whole += squares_of(total[n, c], mean[c])
            variance[c] = whole / (samples * length)
        rstd[c] = 1 / np.sqrt(variance[c] + eps)
        for n in range(samples):
            scaled(total[n, c], mean[c], rstd[c] * weight[c], bias[c], y[n, c])


@kernel
def _backward(g, of_total, x, weight, mean, rstd, training, dweight, dbias, dx):
    """The gradient of each channel, and its sums of g x_hat and g."""
    samples, channels, length = x.shape
    for c in prange(channels):
        m, r, of_product, of_g = mean[c], rstd[c], 0.0, 0.0
        for n in range(samples):
            sums = sums_of(g[n, c], x[n, c], m, r)
            of_product += sums[0]
            of_g += sums[1]
        dweight[c] = of_product
        dbias[c] = of_g
        share = weight[c] / np.float32(samples * length)
        along, level = dweight[c] * share, dbias[c] * share
        for n in range(samples):
            if training:
                gradient_of(g[n, c], x[n, c], weight[c], m, r, along, level, dx[n, c])
            else:  # x has no part in it, not even where it is NaN
                scaled(g[n, c], ZERO, r * weight[c], ZERO, dx[n, c])
            if of_total.size:
                add(dx[n, c], of_total[n, c], dx[n, c])


@kernel
def _forward_rows(x, residual, total, weight, bias, eps, training, mean, variance, rstd, y):
    """`_forward` for (samples, channels, 1), as a matrix."""
    rows, channels = x.shape
    parts = max(1, min(_PARTS, (rows + _CHUNK - 1) // _CHUNK))
    means, squares = np.zeros((parts, channels)), np.zeros((parts, channels))
    if training or residual.size:
        for part in prange(parts):
            begin, end = part * rows // parts, (part + 1) * rows // parts
            for first in range(begin, end, _CHUNK):
                last = min(end, first + _CHUNK)
                if residual.size:
                    for i in range(first, last):
                        add(x[i], residual[i], total[i])
                if training:
                    _take_in(total[first:last], first - begin, means[part], squares[part])
    if training:
        for part in range(1, parts):
            before, count = part * rows // parts, (part + 1) * rows // parts - part * rows // parts
            _merge(means[part], squares[part], count, means[0], squares[0], before)
        mean[:] = means[0]
        variance[:] = squares[0] / max(rows, 1)
    scale = np.empty(channels, SINGLE)
    for j in range(channels):
        rstd[j] = 1 / np.sqrt(variance[j] + eps)
        scale[j] = rstd[j] * weight[j]
    for i in prange(rows):
        row, out = total[i], y[i]
        for j in range(channels):
            out[j] = (row[j] - mean[j]) * scale[j] + bias[j]


@device
def _take_in(x, before, mean, squares):
    """Add the rows of x to the mean of so many rows before, and to the sum of squared distances from it."""
    of_chunk, distances = x[0].copy(), np.zeros(x.shape[1], SINGLE)
    for i in range(1, len(x)):
        add(of_chunk, x[i], of_chunk)
    share = ONE / np.float32(len(x))
    for j in range(of_chunk.size):
        of_chunk[j] *= share
    for i in range(len(x)):
        row = x[i]
        for j in range(row.size):
            distances[j] += (row[j] - of_chunk[j]) * (row[j] - of_chunk[j])
    _merge(of_chunk, distances, len(x), mean, squares, before)


@device
def _merge(other_mean, other_squares, count, mean, squares, before):
    """Means and sums of squared distances of `count` rows and of those before (Chan et al., 1979)."""
    share = count / (before + count)
    for j in range(mean.size):
        distance = other_mean[j] - mean[j]
        mean[j] += distance * share
        squares[j] += other_squares[j] + distance * distance * (before * share)


@kernel
def _backward_rows(g, of_total, x, weight, mean, rstd, training, dweight, dbias, dx):
    """`_backward` for (samples, channels, 1), as a matrix."""
    rows, channels = x.shape
    parts = min(_PARTS, (rows + _CHUNK - 1) // _CHUNK)
    of_products, of_gs = np.zeros((parts, channels), SINGLE), np.zeros((parts, channels), SINGLE)
    for part in prange(parts):
        of_product, of_g = of_products[part], of_gs[part]
        for i in range(part * rows // parts, (part + 1) * rows // parts):
            row, g_row = x[i], g[i]
            for j in range(channels):
                of_product[j] += g_row[j] * (row[j] - mean[j])
                of_g[j] += g_row[j]
    dweight[:], dbias[:] = of_products.sum(0) * rstd, of_gs.sum(0)
    share = ONE / np.float32(rows)
    along, level, scale = dweight * rstd * share, dbias * share, rstd * weight
    for i in prange(rows):
        row, g_row, out = x[i], g[i], dx[i]
        if training:
            for j in range(channels):
                out[j] = (g_row[j] - level[j] - (row[j] - mean[j]) * along[j]) * scale[j]
        else:
            for j in range(channels):
                out[j] = g_row[j] * scale[j]
        if of_total.size:
            add(out, of_total[i], out)


def _normalize(
    x: np.ndarray,
    residual: np.ndarray | None,
    mean: np.ndarray | Running,
    variance: np.ndarray | None,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, Callable]:
    """See `normalization.register`."""
    require_single(x, residual, weight, bias, *(() if training else (mean, variance)))
    shape, channels, length = x.shape, x.shape[1], math.prod(x.shape[2:])
    by_rows = length == 1
    layout = (shape[0], channels) if by_rows else (shape[0], channels, length)
    x, residual = contiguous(x, layout), contiguous(residual, layout)
    has_weight, has_bias = weight is not None, bias is not None
    scale, shift = parameters(weight, bias, channels)
    running, rstd = mean, np.empty(channels, SINGLE)
    if training:
        mean, variance = np.empty(channels, SINGLE), np.empty(channels, SINGLE)
    else:
        mean, variance = contiguous(mean, (channels,)), contiguous(variance, (channels,))
    total, y = np.empty_like(x) if residual.size else x, np.empty_like(x)
    forward = _forward_rows if by_rows else _forward
    forward(x, residual, total, scale, shift, eps, training, mean, variance, rstd, y)
    if training:
        running.follow(mean, variance)

    def backward(of_y: Any, of_total: Any) -> tuple:
        g, of_total = contiguous(of_y, layout), contiguous(of_total, layout)
        dx, dweight, dbias = np.empty_like(total), np.empty(channels, SINGLE), np.empty(channels, SINGLE)
        gradients = _backward_rows if by_rows else _backward
        gradients(g, of_total, total, scale, mean, rstd, training, dweight, dbias, dx)
        dweight, dbias = dweight if has_weight else None, dbias if has_bias else None
        return dx.reshape(shape), None, None, dweight, dbias

    return y.reshape(shape), total.reshape(shape), backward


register("cpu", batch_norm, add_batch_norm, _normalize)
