"""
Layer norm, and RMS norm, which is the same without a mean, both perhaps after an addition: row by row.

Backward has the rows in chunks, whose number depends on the shape alone: so do results, and not on the number
of threads. On the way through its rows a chunk adds up its part of the gradients of weight and bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from ...functional.add_norm import add_layer_norm, add_rms_norm
from ...functional.normalization import layer_norm, rms_norm
from ..normalization import register
from .approximations import wide_registers
from .moments import ONE, SINGLE, ZERO, add, contiguous, parameters, require_single, squares_of, sum_of

_ROWS_OF_CHUNK, _MOST_CHUNKS = 32, 64


@kernel
def _forward(x, residual, total, weight, bias, eps, centred, y, mean, rstd):
    """y = (total - mean) rstd weight + bias for each row; where there is no residual, `total` is x."""
    for i in prange(x.shape[0]):
        wide_registers()  # a fifth faster: all but the first look at a row finds it in the nearest cache
        row, out = total[i], y[i]
        if residual.size:
            add(x[i], residual[i], row)
        m = np.float32(sum_of(row) / row.size) if centred else ZERO
        r = np.float32(1 / np.sqrt(squares_of(row, m) / row.size + eps))
        mean[i] = m
        rstd[i] = r
        for j in range(row.size):
            out[j] = (row[j] - m) * r * weight[j] + bias[j]


@kernel
def _backward(g, of_total, x, weight, mean, rstd, centred, parts, dx):
    """dx = rstd (d - mean(d) - x_hat mean(d x_hat)) + of_total with d = g weight, and for each chunk of rows
    the sums of g x_hat and g."""
    rows, n = x.shape
    chunks = parts.shape[0]
    share = ONE / np.float32(n)
    for chunk in prange(chunks):
        wide_registers()
        of_weight, of_bias = parts[chunk, 0], parts[chunk, 1]
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            row, g_row, out, m, r = x[i], g[i], dx[i], mean[i], rstd[i]
            along, level = ZERO, ZERO
            for j in range(n):
                x_hat = (row[j] - m) * r
                d = g_row[j] * weight[j]
                of_weight[j] += g_row[j] * x_hat
                of_bias[j] += g_row[j]
                along += d * x_hat
                level += d
            along *= share
            level = level * share if centred else ZERO
            for j in range(n):
                out[j] = (g_row[j] * weight[j] - level - (row[j] - m) * r * along) * r
            if of_total.size:
                add(out, of_total[i], out)


def _normalize(
    x: np.ndarray,
    residual: np.ndarray | None,
    normalized_shape: Sequence[int],
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
    centred: bool = True,
) -> tuple[np.ndarray, np.ndarray, Callable]:
    """See `normalization.register`."""
    require_single(x, residual, weight, bias)
    shape, n = x.shape, math.prod(normalized_shape)
    matrix = x.size // max(n, 1), n
    x, residual = contiguous(x, matrix), contiguous(residual, matrix)
    has_weight, has_bias = weight is not None, bias is not None
    scale, shift = parameters(weight, bias, n)
    total = np.empty_like(x) if residual.size else x
    y, mean, rstd = np.empty_like(x), np.empty(matrix[0], SINGLE), np.empty(matrix[0], SINGLE)
    _forward(x, residual, total, scale, shift, eps, centred, y, mean, rstd)

    def backward(of_y: Any, of_total: Any) -> tuple:
        g, of_total = contiguous(of_y, matrix), contiguous(of_total, matrix)
        dx = np.empty_like(total)
        chunks = min(max(matrix[0] // _ROWS_OF_CHUNK, 1), _MOST_CHUNKS)
        parts = np.zeros((chunks, 2, n), SINGLE)
        _backward(g, of_total, total, scale, mean, rstd, centred, parts, dx)
        dweight, dbias = parts.sum(0).reshape(2, *normalized_shape)
        return dx.reshape(shape), None, dweight if has_weight else None, dbias if has_bias else None

    return y.reshape(shape), total.reshape(shape), backward


def _without_mean(x, residual, normalized_shape, weight, eps):
    return _normalize(x, residual, normalized_shape, weight, None, eps, False)


register("cpu", layer_norm, add_layer_norm, _normalize)
register("cpu", rms_norm, add_rms_norm, _without_mean)
