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


@kernel
def _rows_forward(x, mask, which, causal, log, out):
    """Row i of x has the mask mask[which[i]]; in each run of `causal` rows the i-th ends with column i."""
    for i in prange(x.shape[0]):
        seen = _seen(i, causal, x.shape[1])
        row, y = x[i][:seen], out[i][:seen]
        if mask.size:
            row, counts = np.empty(seen, np.float32), mask[which[i]]
            for j in range(seen):
                value = x[i, j]  # read in any case: no branch
                row[j] = value if counts[j] else -INF
        largest, total = -INF, ZERO
        for j in range(seen):
            largest = maximum32(largest, row[j])
        if log:
            for j in range(seen):
                total += exp32(row[j] - largest)
            shift = np.float32(np.log(total))
            for j in range(seen):
                y[j] = row[j] - largest - shift
            out[i, seen:] = -INF - shift
        else:
            for j in range(seen):
                power = exp32(row[j] - largest)
                y[j] = power
                total += power
            factor = ONE / total
            for j in range(seen):
                y[j] *= factor
            out[i, seen:] = ZERO * factor  # NaN, if the row is


@kernel
def _rows_backward(y, g, mask, which, causal, log, d):
    """d = y (g - sum(g y)), or g - exp(y) sum(g) for the logarithm, where elements count; else 0."""
    for i in prange(y.shape[0]):
        seen = _seen(i, causal, y.shape[1])
        row, g_row, out = y[i], g[i], d[i, :seen]
        total = ZERO
        if log:
            for j in range(row.size):
                total += g_row[j]
            for j in range(seen):
                out[j] = g_row[j] - exp32(row[j]) * total
        else:
            for j in range(row.size):
                total += g_row[j] * row[j]
            for j in range(seen):
                out[j] = row[j] * (g_row[j] - total)
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


_NO_MASK = np.empty((0, 0), bool), np.empty(0, np.int64)


def _by_rows(x: np.ndarray, mask: Any, is_causal: bool, log: bool) -> tuple:
    require_single(x)
    shape = x.shape
    n = shape[-1] if shape else 1
    matrix = (x.size // max(n, 1), n)
    masks = _NO_MASK if mask is None else mask_rows(mask, shape)
    causal = shape[-2] if is_causal else 0
    y = np.empty(matrix, np.float32)
    _rows_forward(contiguous(x, matrix), *masks, causal, log, y)

    def grad(g):
        d = np.empty_like(y)
        _rows_backward(y, contiguous(g, matrix), *masks, causal, log, d)
        return d.reshape(shape)

    return y.reshape(shape), grad
