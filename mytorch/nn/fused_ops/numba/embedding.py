"""Embedding: rows of a table. In backward each thread adds up a range of columns."""

from __future__ import annotations

import numpy as np

from ....backends import threads
from ....backends.jit import kernel, prange
from ....core.grad_accumulator import LazyGrad
from ...functional.embedding import embedding
from .moments import ONE, ZERO, require_single

FEW = 1 << 17  # elements up to which one thread is faster than waking others
MIN_COLUMNS = 16  # of a thread: a cache line


@embedding.fused("cpu")
def _embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    require_single(weight)
    shape, width = weight.shape, weight.shape[1]
    if index.size * width < FEW:
        y = np.take(weight, index, axis=0)
    else:
        y = np.empty((*index.shape, width), np.float32)
        _take(np.ravel(index), np.ascontiguousarray(weight), y.reshape(index.size, width))

    def vjp(g):
        def compute(out, beta):
            add_rows(index, g, out, padding_idx, scale_grad_by_freq, beta)

        return LazyGrad(shape, g, compute)

    return y, (None, vjp)


def add_rows(
    index: np.ndarray, g: np.ndarray, out: np.ndarray, padding_idx: int | None = None,
    scale_grad_by_freq: bool = False, beta: int = 1,
) -> None:
    """Adds g[i] to out[index[i]] for all i, in order, for any number of threads.

    Args:
        index: int64 or int32 indices of existing rows, any shape.
        g: float32 (*index.shape, n)
        out: float32 (rows, n)
        padding_idx: a row to which nothing is added.
        scale_grad_by_freq: what is added to a row is divided by the number of its occurrences in index.
        beta: 0 to overwrite `out`, 1 to add to it.
    """
    copy = out if out.flags.c_contiguous else np.ascontiguousarray(out)
    index = np.ascontiguousarray(index).reshape(-1)
    g = np.ascontiguousarray(g).reshape(index.size, out.shape[1])
    occurrences = np.bincount(index) if scale_grad_by_freq else np.empty(0, np.int64)
    parts = max(1, min(threads.get_num_threads(), out.shape[1] // MIN_COLUMNS))
    _add_rows(index, g, copy, -1 if padding_idx is None else padding_idx, occurrences, beta == 0, parts)
    if copy is not out:
        out[...] = copy


@kernel
def _take(index, weight, y):
    for i in prange(index.size):
        row, out = weight[index[i]], y[i]
        for j in range(out.size):
            out[j] = row[j]


@kernel
def _add_rows(index, g, out, padding_idx, occurrences, clear, parts):
    width = out.shape[1]
    if clear:
        for i in prange(out.shape[0]):
            out[i] = ZERO
    for k in prange(parts):
        first, last = k * width // parts, (k + 1) * width // parts
        for i in range(index.size):
            row = index[i]
            if row == padding_idx:
                continue
            total, part = out[row, first:last], g[i, first:last]
            factor = ONE / np.float32(occurrences[row]) if occurrences.size else ONE
            for j in range(total.size):
                total[j] += factor * part[j]
