"""
Softmax and its logarithm: the maximum, the exponentials and their sum, and the result are computed one after
the other while a row is in the nearest cache.
"""

from __future__ import annotations

import math

import numpy as np

from ....backends.jit import kernel, prange, routine
from ...functional.softmax import log_softmax, softmax
from .approximations import INF, ONE, ZERO, exp32
from .in_order import minus
from .maximum import maximum32
from .moments import contiguous, require_single

LANES = 128  # adjacent columns at a time, where the dim isn't the last


@routine
def max_of(x):
    largest = -INF
    for j in range(x.size):
        largest = maximum32(largest, x[j])
    return largest


@routine
def _forward(x, log, y):
    """One row."""
    largest, total = max_of(x), ZERO
    if log:
        for j in range(x.size):
            total += exp32(x[j] - largest)
        shift = np.float32(np.log(total))
        for j in range(x.size):
            y[j] = minus(minus(x[j], largest), shift)
        return
    for j in range(x.size):
        exp = exp32(x[j] - largest)
        y[j] = exp
        total += exp
    factor = ONE / total
    for j in range(x.size):
        y[j] *= factor


@routine
def _backward(y, g, log, d):
    """d = y (g - sum(g y)), or g - exp(y) sum(g) for the logarithm."""
    total = ZERO
    if log:
        for j in range(y.size):
            total += g[j]
        for j in range(y.size):
            d[j] = g[j] - exp32(y[j]) * total
    else:
        for j in range(y.size):
            total += g[j] * y[j]
        for j in range(y.size):
            d[j] = y[j] * (g[j] - total)


@kernel
def _rows_forward(x, log, out):
    for i in prange(x.shape[0]):
        _forward(x[i], log, out[i])


@kernel
def _rows_backward(y, g, log, d):
    for i in prange(y.shape[0]):
        _backward(y[i], g[i], log, d[i])


@kernel
def _columns_forward(x, log, out):
    """Along the middle dim of x."""
    outer, n, inner = x.shape
    blocks = (inner + LANES - 1) // LANES
    for item in prange(outer * blocks):
        a, first = item // blocks, item % blocks * LANES
        last = min(inner, first + LANES)
        largest, total = np.full(last - first, -INF), np.zeros(last - first, np.float32)
        for i in range(n):
            row, y = x[a, i, first:last], out[a, i, first:last]
            for j in range(largest.size):
                y[j] = row[j]
                largest[j] = maximum32(largest[j], row[j])
        for i in range(n):
            y = out[a, i, first:last]
            for j in range(largest.size):
                y[j] -= largest[j]
                exp = exp32(y[j])
                total[j] += exp
                y[j] = y[j] if log else exp
        for j in range(largest.size):
            total[j] = np.log(total[j]) if log else ONE / total[j]
        for i in range(n):
            y = out[a, i, first:last]
            for j in range(largest.size):
                y[j] = y[j] - total[j] if log else y[j] * total[j]


@kernel
def _columns_backward(y, g, log, d):
    outer, n, inner = y.shape
    blocks = (inner + LANES - 1) // LANES
    for item in prange(outer * blocks):
        a, first = item // blocks, item % blocks * LANES
        last = min(inner, first + LANES)
        total = np.zeros(last - first, np.float32)
        for i in range(n):
            row, g_row = y[a, i, first:last], g[a, i, first:last]
            for j in range(total.size):
                total[j] += g_row[j] if log else g_row[j] * row[j]
        for i in range(n):
            row, g_row, out = y[a, i, first:last], g[a, i, first:last], d[a, i, first:last]
            for j in range(total.size):
                out[j] = g_row[j] - exp32(row[j]) * total[j] if log else row[j] * (g_row[j] - total[j])


@softmax.fused("cpu")
def _softmax(x, dim, _stacklevel, dtype):
    return _along(x, dim, False)


@log_softmax.fused("cpu")
def _log_softmax(x, dim, _stacklevel, dtype):
    return _along(x, dim, True)


def _along(x: np.ndarray, dim: int, log: bool) -> tuple:
    if dim >= x.ndim - 1:
        return _by_rows(x, log)
    require_single(x)
    shape = x.shape
    stack = (math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))
    y = np.empty(stack, np.float32)
    _columns_forward(contiguous(x, stack), log, y)

    def vjp(g):
        dx = np.empty_like(y)
        _columns_backward(y, contiguous(g, stack), log, dx)
        return dx.reshape(shape)

    return y.reshape(shape), vjp


def _by_rows(x: np.ndarray, log: bool) -> tuple:
    require_single(x)
    shape = x.shape
    n = shape[-1] if shape else 1
    matrix = (x.size // max(n, 1), n)
    y = np.empty(matrix, np.float32)
    _rows_forward(contiguous(x, matrix), log, y)

    def vjp(g):
        dx = np.empty_like(y)
        _rows_backward(y, contiguous(g, matrix), log, dx)
        return dx.reshape(shape)

    return y.reshape(shape), vjp
