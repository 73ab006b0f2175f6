"""
Batch norm: channel by channel, in training and with the running statistics.

The input is (samples, channels, length): a channel of a sample is contiguous. For an input (N, C), whose
length is 1, a thread takes all channels of some rows instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....backends.jit import device, kernel, prange
from ...functional.batch_norm import Running, batch_norm
from .in_order import minus
from .moments import (
    ONE,
    SINGLE,
    ZERO,
    add,
    contiguous,
    corrected,
    distances_of,
    input_gradient,
    parameters,
    require_single,
    scaled,
    sum_of,
    weight_gradients,
)

_CHUNK = 32  # rows that are summed in float32 while they are in a near cache
_PARTS = 16  # of all rows, a constant: the result must not depend on the number of threads


@kernel
def _forward(x, weight, bias, eps, training, mean, variance, rstd, y):
    """y = (x - mean) rstd weight + bias; in training the mean and the variance are computed first."""
    samples, channels, length = x.shape
    for c in prange(channels):
        if training:
            total = 0.0
            for n in range(samples):
                total += sum_of(x[n, c])
            mean[c] = total / (samples * length)
            total, squares = 0.0, 0.0
            for n in range(samples):
                sums = distances_of(x[n, c], mean[c])
                total += sums[0]
                squares += sums[1]
            mean[c], variance[c] = corrected(mean[c], total, squares, samples * length)
        rstd[c] = 1 / np.sqrt(variance[c] + eps)
        for n in range(samples):
            scaled(x[n, c], mean[c], rstd[c] * weight[c], bias[c], y[n, c])


@kernel
def _backward(dy, x, weight, mean, rstd, training, dweight, dbias, dx):
    """The gradient of each channel, and its sums of dy x_hat and dy."""
    samples, channels, length = x.shape
    for c in prange(channels):
        m, r, sum_dyxhat, sum_dy = mean[c], rstd[c], 0.0, 0.0
        for n in range(samples):
            sums = weight_gradients(dy[n, c], x[n, c], m, r)
            sum_dyxhat += sums[0]
            sum_dy += sums[1]
        dweight[c] = sum_dyxhat
        dbias[c] = sum_dy
        scale = weight[c] / np.float32(samples * length)
        mean_dxhat, mean_d = dweight[c] * scale, dbias[c] * scale
        for n in range(samples):
            if training:
                input_gradient(dy[n, c], x[n, c], weight[c], m, r, mean_dxhat, mean_d, dx[n, c])
            else:  # independent of x, even where that is NaN
                scaled(dy[n, c], ZERO, r * weight[c], ZERO, dx[n, c])


@kernel
def _forward_rows(x, weight, bias, eps, training, mean, variance, rstd, y):
    """`_forward` for (samples, channels, 1), as a matrix."""
    rows, channels = x.shape
    parts = max(1, min(_PARTS, (rows + _CHUNK - 1) // _CHUNK))
    means, squares = np.zeros((parts, channels)), np.zeros((parts, channels))
    if training:
        for part in prange(parts):
            begin, end = part * rows // parts, (part + 1) * rows // parts
            for first in range(begin, end, _CHUNK):
                chunk = x[first : min(end, first + _CHUNK)]
                _update_moments(chunk, first - begin, means[part], squares[part])
        for part in range(1, parts):
            before, count = part * rows // parts, (part + 1) * rows // parts - part * rows // parts
            _merge(means[part], squares[part], count, means[0], squares[0], before)
    scale = np.empty(channels, SINGLE)
    for j in range(channels):  # loops, as array expressions take Numba seconds to compile
        if training:
            mean[j], variance[j] = means[0, j], squares[0, j] / max(rows, 1)
        rstd[j] = 1 / np.sqrt(variance[j] + eps)
        scale[j] = rstd[j] * weight[j]
    for i in prange(rows):
        row, out = x[i], y[i]
        for j in range(channels):
            out[j] = (row[j] - mean[j]) * scale[j] + bias[j]


@device
def _update_moments(x, before, mean, squares):
    """Includes the rows of x in the mean of `before` earlier rows and in their sum of squared distances."""
    chunk_mean = x[0].copy()
    distances, squared_distances = np.zeros(x.shape[1], SINGLE), np.zeros(x.shape[1], SINGLE)
    for i in range(1, len(x)):
        add(chunk_mean, x[i], chunk_mean)
    inv_n = ONE / np.float32(len(x))
    for j in range(chunk_mean.size):
        chunk_mean[j] *= inv_n
    for i in range(len(x)):
        row = x[i]
        for j in range(row.size):
            distance = minus(row[j], chunk_mean[j])
            distances[j] += distance
            squared_distances[j] += distance * distance
    for j in range(chunk_mean.size):
        sums = distances[j], squared_distances[j]
        chunk_mean[j], squared_distances[j] = corrected(chunk_mean[j], *sums, len(x))
        squared_distances[j] *= len(x)
    _merge(chunk_mean, squared_distances, len(x), mean, squares, before)


@device
def _merge(other_mean, other_squares, count, mean, squares, before):
    """Merges means and sums of squared distances of `count` rows into those of earlier ones (Chan, 1979)."""
    weight = count / (before + count)
    for j in range(mean.size):
        distance = other_mean[j] - mean[j]
        mean[j] += distance * weight
        squares[j] += other_squares[j] + distance * distance * (before * weight)


@kernel
def _backward_rows(dy, x, weight, mean, rstd, training, dweight, dbias, dx):
    """`_backward` for (samples, channels, 1), as a matrix."""
    rows, channels = x.shape
    parts = min(_PARTS, (rows + _CHUNK - 1) // _CHUNK)
    products, sums = np.zeros((parts, channels), SINGLE), np.zeros((parts, channels), SINGLE)
    for part in prange(parts):
        product, total = products[part], sums[part]
        for i in range(part * rows // parts, (part + 1) * rows // parts):
            row, dy_row = x[i], dy[i]
            for j in range(channels):
                product[j] += dy_row[j] * (row[j] - mean[j])
                total[j] += dy_row[j]
    inv_n = ONE / np.float32(rows)
    mean_dyxhat, mean_dy, scale = np.empty_like(mean), np.empty_like(mean), np.empty_like(mean)
    for j in range(channels):
        product, total = ZERO, ZERO
        for part in range(parts):
            product += products[part, j]
            total += sums[part, j]
        dweight[j], dbias[j], scale[j] = product * rstd[j], total, rstd[j] * weight[j]
        mean_dyxhat[j], mean_dy[j] = dweight[j] * rstd[j] * inv_n, total * inv_n
    for i in prange(rows):
        row, dy_row, out = x[i], dy[i], dx[i]
        if training:
            for j in range(channels):
                out[j] = (dy_row[j] - mean_dy[j] - (row[j] - mean[j]) * mean_dyxhat[j]) * scale[j]
        else:
            for j in range(channels):
                out[j] = dy_row[j] * scale[j]


@batch_norm.fused("cpu")
def _batch_norm(
    x: np.ndarray, mean: np.ndarray | Running, variance: np.ndarray | None, weight: np.ndarray | None,
    bias: np.ndarray | None, training: bool, momentum: float, eps: float,
) -> tuple[np.ndarray, Callable]:
    require_single(x, weight, bias, *(() if training else (mean, variance)))
    shape, channels, length = x.shape, x.shape[1], math.prod(x.shape[2:])
    by_rows = length == 1
    layout = (shape[0], channels) if by_rows else (shape[0], channels, length)
    x = contiguous(x, layout)
    has_weight, has_bias = weight is not None, bias is not None
    scale, shift = parameters(weight, bias, channels, x)
    running, rstd = mean, np.empty(channels, SINGLE)
    if training:
        mean, variance = np.empty(channels, SINGLE), np.empty(channels, SINGLE)
    else:
        mean, variance = contiguous(mean, (channels,)), contiguous(variance, (channels,))
    y = np.empty_like(x)
    forward = _forward_rows if by_rows else _forward
    forward(x, scale, shift, eps, training, mean, variance, rstd, y)
    if training:
        running.update(mean, variance)

    def vjp(dy: np.ndarray) -> tuple:
        dx, dweight, dbias = np.empty_like(x), np.empty(channels, SINGLE), np.empty(channels, SINGLE)
        backward = _backward_rows if by_rows else _backward
        backward(contiguous(dy, layout), x, scale, mean, rstd, training, dweight, dbias, dx)
        dweight, dbias = dweight if has_weight else None, dbias if has_bias else None
        return dx.reshape(shape), None, None, dweight, dbias

    return y.reshape(shape), vjp
