"""Embedding: rows of a table. Backward sorts the indices, so that one program adds up a row's gradient."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ....core.grad_accumulator import LazyGrad
from ...functional.embedding import embedding
from .launch import launch, require_dtypes
from .sizes import cdiv, next_power_of_2

ROWS, MAX_BLOCK = 16, 256


@embedding.fused("cuda")
def _embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    require_dtypes(weight)
    (count, width), shape = weight.shape, index.shape
    index, weight = np.ascontiguousarray(index, like=index), np.ascontiguousarray(weight, like=weight)
    y = np.empty((*shape, width), weight.dtype, like=weight)
    if y.size:
        block = _width(width)
        grid = cdiv(index.size, ROWS), cdiv(width, block)
        launch(_take, grid, index, weight, y, index.size, count, width, ROWS=ROWS, BLOCK=block)

    def vjp(g):
        def compute(out, beta):
            add_rows(index, g, out, padding_idx, scale_grad_by_freq, beta)

        return LazyGrad((count, width), g, compute)

    return y, (None, vjp)


def add_rows(
    index: RawArray, g: RawArray, out: RawArray, padding_idx: int | None = None,
    scale_grad_by_freq: bool = False, beta: int = 1,
) -> None:
    """Adds g[i] to out[index[i]] for all i; deterministic.

    Args:
        index: int64 or int32 indices of rows, any shape.
        g: (*index.shape, n)
        out: (rows, n)
        padding_idx: a row to which nothing is added.
        scale_grad_by_freq: what is added to a row is divided by the number of its occurrences in index.
        beta: 0 to overwrite `out`, 1 to add to it.
    """
    if not out.flags.c_contiguous:
        copy = np.ascontiguousarray(out, like=out)
        add_rows(index, g, copy, padding_idx, scale_grad_by_freq, beta)
        out[...] = copy
        return
    if not beta:
        out.fill(0)
    if not g.size:
        return
    count, width = out.shape
    index = np.reshape(index, -1)
    order = np.argsort(index, kind="stable")
    block = _width(width)
    launch(
        _add_rows, (index.size, cdiv(width, block)), index[order], order,
        np.ascontiguousarray(g, like=g), out,
        index.size, count, width, -1 if padding_idx is None else padding_idx,
        BY_FREQUENCY=scale_grad_by_freq, ROWS=ROWS, BLOCK=block,
    )


def _width(n: int) -> int:
    return min(next_power_of_2(n), MAX_BLOCK)


@triton.jit
def _take(index_ptr, weight_ptr, y_ptr, n, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """ROWS rows of y, BLOCK columns; NaN for an index out of range."""
    # Shapes: index (n,); weight (count, width); y (n, width)
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    row = tl.load(index_ptr + i, mask=i < n, other=0).to(tl.int64)[:, None]
    exists = (row >= 0) & (row < count) & (column < width)
    x = tl.load(weight_ptr + row * width + column, mask=exists, other=float("nan"))
    tl.store(y_ptr + i[:, None] * width + column, x, mask=(i[:, None] < n) & (column < width))


@triton.jit
def _add_rows(
    sorted_ptr, order_ptr, g_ptr, out_ptr, n, count, width, padding_idx,
    BY_FREQUENCY: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """Where a new index begins among the sorted ones, adds g of it and of the equal ones that follow."""
    # Shapes: sorted, order (n,); g (n, width); out (count, width)
    start = tl.program_id(0).to(tl.int64)
    row = tl.load(sorted_ptr + start).to(tl.int64)
    before = tl.load(sorted_ptr + start - 1, mask=start > 0, other=-1).to(tl.int64)
    if (row != before) & (row != padding_idx) & (row >= 0) & (row < count):
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        occurrences = 0
        i = start
        while i < n:
            at = i + tl.arange(0, ROWS)
            equal = tl.load(sorted_ptr + at, mask=at < n, other=-1) == row
            source = tl.load(order_ptr + at, mask=equal, other=0).to(tl.int64)[:, None]
            inside = equal[:, None] & (column < width)
            total += tl.load(g_ptr + source * width + column, mask=inside, other=0.0).to(tl.float32)
            found = tl.sum(equal.to(tl.int32), axis=0)
            occurrences += found
            i = tl.where(found == ROWS, i + ROWS, n)
        added = tl.sum(total, axis=0, keep_dims=True)
        if BY_FREQUENCY:
            added /= occurrences
        out = out_ptr + row * width + column
        added += tl.load(out, mask=column < width, other=0.0).to(tl.float32)
        tl.store(out, added.to(out_ptr.dtype.element_ty), mask=column < width)
