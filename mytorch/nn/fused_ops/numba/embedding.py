"""Embedding: rows of a table, and its gradient, in which each thread sums columns of its own."""

from __future__ import annotations

import numpy as np

from ....backends import threads
from ....backends.jit import kernel, prange
from ....core.lazy_grad import LazyGrad
from ...functional.composite import Unsupported
from ...functional.embedding import embedding

ZERO, ONE = np.float32(0), np.float32(1)
FEW = 1 << 17  # elements that one thread has copied before others have begun
NARROWEST = 16  # columns that a thread should have at least: a cache line


@embedding.fused("cpu")
def _embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    if weight.dtype != np.float32:
        raise Unsupported(f"the CPU's kernels compute in float32: none for {weight.dtype}")
    shape, width = weight.shape, weight.shape[1]
    if index.size * width < FEW:
        y = np.take(weight, index, axis=0)
    else:
        y = np.empty((*index.shape, width), np.float32)
        _take(np.ravel(index), np.ascontiguousarray(weight), y.reshape(index.size, width))

    def grad(g):
        def compute(out, beta):
            add_rows(index, g, out, padding_idx, scale_grad_by_freq, beta)

        return LazyGrad(shape, g, compute)

    return y, (None, grad)


def add_rows(
    index: np.ndarray, g: np.ndarray, out: np.ndarray, padding_idx: int | None = None,
    scale_grad_by_freq: bool = False, beta: int = 1,
) -> None:  # fmt: skip
    """out[index[i]] += g[i] for all i, in their order, whatever the number of threads.

    Args:
        index: int64 or int32 numbers of rows that exist, any shape.
        g: float32 (*index.shape, n)
        out: float32 (rows, n)
        padding_idx: a row to which nothing is added.
        scale_grad_by_freq: what is added to a row is divided by how often the row is named.
        beta: 0 if `out` is to begin as zeros.
    """
    whole = out if out.flags.c_contiguous else np.ascontiguousarray(out)
    index = np.ascontiguousarray(index).reshape(-1)
    g = np.ascontiguousarray(g).reshape(index.size, out.shape[1])
    uses = np.bincount(index) if scale_grad_by_freq else np.empty(0, np.int64)
    parts = max(1, min(threads.get_num_threads(), out.shape[1] // NARROWEST))
    _add_rows(index, g, whole, -1 if padding_idx is None else padding_idx, uses, beta == 0, parts)
    if whole is not out:
        out[...] = whole


@kernel
def _take(index, weight, y):
    for i in prange(index.size):
        row, out = weight[index[i]], y[i]
        for j in range(out.size):
            out[j] = row[j]


@kernel
def _add_rows(index, g, out, padding_idx, uses, clear, parts):
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
            factor = ONE / np.float32(uses[row]) if uses.size else ONE
            for j in range(total.size):
                total[j] += factor * part[j]
