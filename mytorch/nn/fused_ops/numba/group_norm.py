"""
Group norm, and so instance norm, perhaps after an addition: group by group, each of which lies in one piece.

A group has several channels, and these have a scale and a shift each. Backward first sums up every channel of
a sample, which is all that the group's gradient needs to know, and what weight's and bias's are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from ...functional.add_norm import add_group_norm
from ...functional.batch_norm import group_norm
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


@kernel
def _forward(x, residual, total, channels, weight, bias, eps, y, mean, rstd):
    """y = (total - mean) rstd weight + bias for each group, a row; without a residual, `total` is x.

    A row has so many channels; the next row has the next ones of weight and bias, or the first ones again.
    """
    length = x.shape[1] // channels
    for i in prange(x.shape[0]):
        row = total[i]
        if residual.size:
            add(x[i], residual[i], row)
        m = np.float32(sum_of(row) / row.size)
        r = np.float32(1 / np.sqrt(squares_of(row, m) / row.size + eps))
        mean[i] = m
        rstd[i] = r
        first = i * channels % weight.size
        for c in range(channels):
            here = slice(c * length, (c + 1) * length)
            scaled(row[here], m, r * weight[first + c], bias[first + c], y[i, here])


@kernel
def _backward(g, of_total, x, channels, weight, mean, rstd, of_weight, of_bias, dx):
    """The gradient of each group, and for each of its channels the sums of g x_hat and g."""
    length = x.shape[1] // channels
    share = ONE / np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        m, r, first = mean[i], rstd[i], i * channels % weight.size
        along, level = ZERO, ZERO
        for c in range(channels):
            here = slice(c * length, (c + 1) * length)
            of_weight[i, c], of_bias[i, c] = sums_of(g[i, here], x[i, here], m, r)
            along += weight[first + c] * of_weight[i, c]
            level += weight[first + c] * of_bias[i, c]
        along *= share
        level *= share
        for c in range(channels):
            here = slice(c * length, (c + 1) * length)
            gradient_of(g[i, here], x[i, here], weight[first + c], m, r, along, level, dx[i, here])
        if of_total.size:
            add(dx[i], of_total[i], dx[i])


def _normalize(
    x: np.ndarray,
    residual: np.ndarray | None,
    num_groups: int,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, Callable]:
    """See `normalization.register`."""
    require_single(x, residual, weight, bias)
    shape, count = x.shape, x.shape[0] * num_groups
    channels = shape[1] // num_groups
    matrix = count, channels * math.prod(shape[2:])
    x, residual = contiguous(x, matrix), contiguous(residual, matrix)
    has_weight, has_bias = weight is not None, bias is not None
    scale, shift = parameters(weight, bias, shape[1])
    total = np.empty_like(x) if residual.size else x
    y, mean, rstd = np.empty_like(x), np.empty(count, SINGLE), np.empty(count, SINGLE)
    _forward(x, residual, total, channels, scale, shift, eps, y, mean, rstd)

    def backward(of_y: Any, of_total: Any) -> tuple:
        g, of_total = contiguous(of_y, matrix), contiguous(of_total, matrix)
        dx, sums = np.empty_like(total), np.empty((2, count, channels), SINGLE)
        _backward(g, of_total, total, channels, scale, mean, rstd, sums[0], sums[1], dx)
        dweight, dbias = sums.reshape(2, *shape[:2]).sum(1)
        return dx.reshape(shape), None, dweight if has_weight else None, dbias if has_bias else None

    return y.reshape(shape), total.reshape(shape), backward


register("cpu", group_norm, add_group_norm, _normalize)
