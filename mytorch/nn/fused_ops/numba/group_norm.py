"""
Group norm, and so instance norm: group by group, each of which is contiguous.

A group has several channels with a scale and a shift each. Backward first sums over every channel of a
sample: the gradients of the group, of weight and of bias are computed from these sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....backends.jit import kernel, prange
from ...functional.group_norm import group_norm
from .moments import (
    ONE,
    SINGLE,
    ZERO,
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


@kernel
def _forward(x, channels, weight, bias, eps, y, mean, rstd):
    """y = (x - mean) rstd weight + bias for each group, a row of x with this number of channels.

    The next row has the next channels of weight and bias, or the first ones again.
    """
    length = x.shape[1] // channels
    for i in prange(x.shape[0]):
        row = x[i]
        m = np.float32(sum_of(row) / row.size)
        distances, squares = distances_of(row, m)
        m, variance = corrected(m, distances, squares, row.size)
        r = np.float32(1 / np.sqrt(variance + eps))
        mean[i] = m
        rstd[i] = r
        first = i * channels % weight.size
        for c in range(channels):
            part = slice(c * length, (c + 1) * length)
            scaled(row[part], m, r * weight[first + c], bias[first + c], y[i, part])


@kernel
def _backward(dy, x, channels, weight, mean, rstd, dweight, dbias, dx):
    """The gradient of each group, and for each of its channels the sums of dy x_hat and dy."""
    length = x.shape[1] // channels
    inv_n = ONE / np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        m, r, first = mean[i], rstd[i], i * channels % weight.size
        sum_dxhat, sum_d = ZERO, ZERO
        for c in range(channels):
            part = slice(c * length, (c + 1) * length)
            dweight[i, c], dbias[i, c] = weight_gradients(dy[i, part], x[i, part], m, r)
            sum_dxhat += weight[first + c] * dweight[i, c]
            sum_d += weight[first + c] * dbias[i, c]
        mean_dxhat, mean_d = sum_dxhat * inv_n, sum_d * inv_n
        for c in range(channels):
            part = slice(c * length, (c + 1) * length)
            input_gradient(dy[i, part], x[i, part], weight[first + c], m, r, mean_dxhat, mean_d, dx[i, part])


@group_norm.fused("cpu")
def _group_norm(
    x: np.ndarray, num_groups: int, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, Callable]:
    require_single(x, weight, bias)
    shape, count = x.shape, x.shape[0] * num_groups
    channels = shape[1] // num_groups
    matrix = count, channels * math.prod(shape[2:])
    x = contiguous(x, matrix)
    has_weight, has_bias = weight is not None, bias is not None
    scale, shift = parameters(weight, bias, shape[1], x)
    y, (mean, rstd) = np.empty_like(x), np.empty((2, count), SINGLE, like=x)
    _forward(x, channels, scale, shift, eps, y, mean, rstd)

    def vjp(dy: np.ndarray) -> tuple:
        dx, sums = np.empty_like(x), np.empty((2, count, channels), SINGLE, like=x)
        _backward(contiguous(dy, matrix), x, channels, scale, mean, rstd, sums[0], sums[1], dx)
        dweight, dbias = sums.reshape(2, *shape[:2]).sum(1)
        return dx.reshape(shape), None, dweight if has_weight else None, dbias if has_bias else None

    return y.reshape(shape), vjp
