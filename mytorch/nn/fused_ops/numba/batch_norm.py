"""
Batch norm, perhaps after an addition: channel by channel, in training and with the running statistics.

The input is (samples, channels, length): what a channel has of a sample lies in one piece. Where these pieces
are single numbers, of an input (N, C), a thread takes a block of neighbouring channels row by row instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
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

_WIDTH = 128  # channels of a block


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
        along = dweight[c] * share if training else ZERO
        level = dbias[c] * share if training else ZERO
        for n in range(samples):
            gradient_of(g[n, c], x[n, c], weight[c], m, r, along, level, dx[n, c])
            if of_total.size:
                add(dx[n, c], of_total[n, c], dx[n, c])


@kernel
def _forward_rows(x, residual, total, weight, bias, eps, training, mean, variance, rstd, y):
    """`_forward` for (samples, channels, 1), as a matrix."""
    rows, channels = x.shape
    for block in prange((channels + _WIDTH - 1) // _WIDTH):
        here = slice(block * _WIDTH, min(channels, block * _WIDTH + _WIDTH))
        m, v, r, w, b = mean[here], variance[here], rstd[here], weight[here], bias[here]
        if residual.size:
            for i in range(rows):
                add(x[i, here], residual[i, here], total[i, here])
        if training:
            sums = np.zeros(m.size)
            for i in range(rows):
                row = total[i, here]
                for j in range(m.size):
                    sums[j] += row[j]
            for j in range(m.size):
                m[j] = sums[j] / rows
            sums[:] = 0
            for i in range(rows):
                row = total[i, here]
                for j in range(m.size):
                    sums[j] += (row[j] - m[j]) * (row[j] - m[j])
            for j in range(m.size):
                v[j] = sums[j] / rows
        for j in range(m.size):
            r[j] = 1 / np.sqrt(v[j] + eps)
        for i in range(rows):
            row, out = total[i, here], y[i, here]
            for j in range(m.size):
                out[j] = (row[j] - m[j]) * r[j] * w[j] + b[j]


@kernel
def _backward_rows(g, of_total, x, weight, mean, rstd, training, dweight, dbias, dx):
    """`_backward` for (samples, channels, 1), as a matrix."""
    rows, channels = x.shape
    share = ONE / np.float32(rows)
    for block in prange((channels + _WIDTH - 1) // _WIDTH):
        here = slice(block * _WIDTH, min(channels, block * _WIDTH + _WIDTH))
        m, r, w, of_product, of_g = mean[here], rstd[here], weight[here], dweight[here], dbias[here]
        of_product[:] = ZERO
        of_g[:] = ZERO
        for i in range(rows):
            row, g_row = x[i, here], g[i, here]
            for j in range(m.size):
                of_product[j] += g_row[j] * ((row[j] - m[j]) * r[j])
                of_g[j] += g_row[j]
        along, level = np.zeros(m.size, SINGLE), np.zeros(m.size, SINGLE)
        if training:
            for j in range(m.size):
                along[j] = of_product[j] * share
                level[j] = of_g[j] * share
        for i in range(rows):
            row, g_row, out = x[i, here], g[i, here], dx[i, here]
            for j in range(m.size):
                out[j] = (g_row[j] - level[j] - (row[j] - m[j]) * r[j] * along[j]) * r[j] * w[j]
            if of_total.size:
                add(out, of_total[i, here], out)


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
