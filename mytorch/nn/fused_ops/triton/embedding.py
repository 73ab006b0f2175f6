"""Embedding: rows of a table; its gradient by sorting the numbers of rows, so one program sums a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from ....core.lazy_grad import LazyGrad
from ...functional.embedding import embedding
from .launch import launch, require_dtypes

ROWS, WIDEST = 16, 256


@embedding.fused("cuda")
def _embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    require_dtypes(weight)
    (count, width), shape = weight.shape, index.shape
    index, weight = np.ascontiguousarray(index, like=index), np.ascontiguousarray(weight, like=weight)
    y = np.empty((*shape, width), weight.dtype, like=weight)
    if y.size:
        block = _width(width)
        grid = triton.cdiv(index.size, ROWS), triton.cdiv(width, block)
        launch(_take, grid, index, weight, y, index.size, count, width, ROWS=ROWS, BLOCK=block)

    def grad(g):
        def compute(out, beta):
            add_rows(index, g, out, padding_idx, scale_grad_by_freq, beta)

        return LazyGrad((count, width), g, compute)

    return y, (None, grad)


def add_rows(
    index: Any, g: Any, out: Any, padding_idx: int | None = None, scale_grad_by_freq: bool = False,
    beta: int = 1,
) -> None:  # fmt: skip
    """out[index[i]] += g[i] for all i, the same in each run.

    Args:
        index: int64 or int32 numbers of rows, any shape.
        g: (*index.shape, n)
        out: (rows, n)
        padding_idx: a row to which nothing is added.
        scale_grad_by_freq: what is added to a row is divided by how often the row is named.
        beta: 0 if `out` is to begin as zeros.
    """
    if not out.flags.c_contiguous:
        whole = np.ascontiguousarray(out, like=out)
        add_rows(index, g, whole, padding_idx, scale_grad_by_freq, beta)
        out[...] = whole
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
        _add_rows, (index.size, triton.cdiv(width, block)), index[order], order,
        np.ascontiguousarray(g, like=g), out,
        index.size, count, width, -1 if padding_idx is None else padding_idx,
        BY_FREQUENCY=scale_grad_by_freq, ROWS=ROWS, BLOCK=block,
    )  # fmt: skip


def _width(n: int) -> int:
    return min(triton.next_power_of_2(n), WIDEST)


@triton.jit
def _take(index_ptr, weight_ptr, y_ptr, n, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """ROWS rows of y, BLOCK columns; a row that doesn't exist is NaN."""
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
):  # fmt: skip
    """If the sorted numbers of rows have a new one here, add all g of its equals, which follow it."""
    start = tl.program_id(0).to(tl.int64)
    row = tl.load(sorted_ptr + start).to(tl.int64)
    before = tl.load(sorted_ptr + start - 1, mask=start > 0, other=-1).to(tl.int64)
    if (row != before) & (row != padding_idx) & (row >= 0) & (row < count):
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        uses = 0
        i = start
        while i < n:
            at = i + tl.arange(0, ROWS)
            equal = tl.load(sorted_ptr + at, mask=at < n, other=-1) == row
            source = tl.load(order_ptr + at, mask=equal, other=0).to(tl.int64)[:, None]
            inside = equal[:, None] & (column < width)
            total += tl.load(g_ptr + source * width + column, mask=inside, other=0.0).to(tl.float32)
            found = tl.sum(equal.to(tl.int32), axis=0)
            uses += found
            i = tl.where(found == ROWS, i + ROWS, n)
        added = tl.sum(total, axis=0, keep_dims=True)
        if BY_FREQUENCY:
            added /= uses
        out = out_ptr + row * width + column
        added += tl.load(out, mask=column < width, other=0.0).to(tl.float32)
        tl.store(out, added.to(out_ptr.dtype.element_ty), mask=column < width)
