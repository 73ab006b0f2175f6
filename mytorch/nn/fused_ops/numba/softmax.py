"""
Softmax and its logarithm, perhaps of masked rows: the maximum, the powers and their sum, and the result
follow each other while a row is in the nearest cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends.jit import device, kernel, prange
from ...functional.masked_softmax import mask_rows, masked_log_softmax, masked_softmax
from ...functional.softmax import log_softmax, softmax
from .approximations import INF, ONE, ZERO, exp32
from .maximum import maximum32
from .moments import contiguous, require_single

LANES = 128  # neighbouring columns at a time, where the dim isn't the last


@device
def largest_of(x):
    largest = -INF
    for j in range(x.size):
        largest = maximum32(largest, x[j])
    return largest


@device
def _forward(x, log, y):
    """One row; returns what an element of it that doesn't count becomes. `y` may be `x`."""
    largest, total = largest_of(x), ZERO
    if log:
        for j in range(x.size):
            total += exp32(x[j] - largest)
        shift = np.float32(np.log(total))
        for j in range(x.size):
            y[j] = x[j] - largest - shift
        return -INF - shift
    for j in range(x.size):
        power = exp32(x[j] - largest)
        y[j] = power
        total += power
    factor = ONE / total
    for j in range(x.size):
        y[j] *= factor
    return ZERO * factor  # NaN, if the row is


@device
def _backward(y, g, log, d):
    """d = y (g - sum(g y)), or g - exp(y) sum(g) for the logarithm; where `d` is shorter, of the first."""
    total = ZERO
    if log:
        for j in range(y.size):
            total += g[j]
        for j in range(d.size):
            d[j] = g[j] - exp32(y[j]) * total
    else:
        for j in range(y.size):
            total += g[j] * y[j]
        for j in range(d.size):
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
def _masked_forward(x, mask, which, causal, log, out):
    """Row i of x has the mask mask[which[i]]; in each run of `causal` rows the i-th ends with column i."""
    for i in prange(x.shape[0]):
        seen = _seen(i, causal, x.shape[1])
        row, y = x[i, :seen], out[i, :seen]
        y[:] = row
        if mask.size:
            counts = mask[which[i]]
            for j in range(seen):
                value = row[j]  # read in any case: no branch
                y[j] = value if counts[j] else -INF
        out[i, seen:] = _forward(y, log, y)


@kernel
def _masked_backward(y, g, mask, which, causal, log, d):
    """`_rows_backward` where elements count; else 0."""
    for i in prange(y.shape[0]):
        seen = _seen(i, causal, y.shape[1])
        out = d[i, :seen]
        _backward(y[i], g[i], log, out)
        if mask.size:
            counts = mask[which[i]]
            for j in range(seen):
                out[j] = out[j] if counts[j] else ZERO
        d[i, seen:] = ZERO


@device
def _seen(i, causal, columns):
    return min(columns, i % causal + 1) if causal else columns


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
                power = exp32(y[j])
                total[j] += power
                y[j] = y[j] if log else power
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


@masked_softmax.fused("cpu")
def _masked_softmax(x, mask, is_causal):
    return _by_rows(x, mask, is_causal, False)


@masked_log_softmax.fused("cpu")
def _masked_log_softmax(x, mask, is_causal):
    return _by_rows(x, mask, is_causal, True)


def _along(x: np.ndarray, dim: int, log: bool) -> tuple:
    if dim >= x.ndim - 1:
        return _by_rows(x, None, False, log)
    require_single(x)
    shape = x.shape
    stack = (math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))
    y = np.empty(stack, np.float32)
    _columns_forward(contiguous(x, stack), log, y)

    def grad(g):
        d = np.empty_like(y)
        _columns_backward(y, contiguous(g, stack), log, d)
        return d.reshape(shape)

    return y.reshape(shape), grad


_ANY = np.empty((0, 0), bool), np.empty(0, np.int64)  # masks


def _by_rows(x: np.ndarray, mask: Any, is_causal: bool, log: bool) -> tuple:
    require_single(x)
    shape = x.shape
    n = shape[-1] if shape else 1
    matrix = (x.size // max(n, 1), n)
    forward, backward, which = _rows_forward, _rows_backward, ()
    if mask is not None or is_causal:
        masks = _ANY if mask is None else mask_rows(mask, shape)
        forward, backward, which = _masked_forward, _masked_backward, (*masks, shape[-2] if is_causal else 0)
    y = np.empty(matrix, np.float32)
    forward(contiguous(x, matrix), *which, log, y)

    def grad(g):
        d = np.empty_like(y)
        backward(y, contiguous(g, matrix), *which, log, d)
        return d.reshape(shape)

    return y.reshape(shape), grad
