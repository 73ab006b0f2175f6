"""Plans a product of strided arrays: which calls of BLAS, with which strides, and what to copy first.

BLAS is column-major: a matrix is a pointer and a leading dimension `ld`, element (i, j) is at i + j ld. A
C-ordered (M, N) is an (N, M) to it, so out = x @ y becomes outᵀ = yᵀ xᵀ without a copy. This module maps
shapes and strides to calls; it accesses no memory.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from .device import RawArray

# The cost of one more call, in bytes that are copied in that time: an estimate.
BYTES_PER_CALL = 4 << 20


class Strided(NamedTuple):
    """Shape, and strides in elements, of an array of two or more dims."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def dense(self) -> Strided:
        """Returns the layout of a copy for BLAS: contiguous matrices, transposed if they are so here; a batch
        dim that repeats one matrix is copied once."""
        batch = zip(self.shape[:-2], self.strides[:-2], strict=True)
        shape = (*(1 if stride == 0 else size for size, stride in batch), *self.shape[-2:])
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if self.strides[-2] == 1:
            strides[-2:] = 1, shape[-2]
        return Strided(shape, tuple(strides))

    def batch_strides(self, ndim: int) -> list[int]:
        """Returns the strides of the batch broadcast to `ndim` dims; 0 where a matrix is repeated."""
        strides = [s if n > 1 else 0 for n, s in zip(self.shape[:-2], self.strides[:-2], strict=True)]
        return [0] * (ndim - len(strides)) + strides


class Matrix(NamedTuple):
    """An operand of a call: its offset, its leading dimension, and its stride in the batch."""

    offset: int
    ld: int
    stride: int
    transposed: bool = False


class Gemm(NamedTuple):
    """c = op(a) op(b) for a batch of column-major matrices (m, k), (k, n) and (m, n); op may transpose."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    batch: int


class Plan(NamedTuple):
    """The copies to make, and then the calls, for out = x @ y; `a` is y, or x if `swapped`."""

    copy_x: bool
    copy_y: bool
    swapped: bool
    calls: tuple[Gemm, ...]


def strided(array: RawArray) -> Strided:
    """Returns shape and strides of an array; strides that BLAS can't use (negative, fractional) become -1."""
    size = array.itemsize
    strides = (s // size if s >= 0 and s % size == 0 else -1 for s in array.strides)
    return Strided(tuple(array.shape), tuple(-1 if s < 0 else s for s in strides))


@functools.lru_cache(maxsize=4096)  # a training step repeats the same products
def plan(x: Strided, y: Strided, out: Strided, itemsize: int) -> Plan | None:
    """Returns the cheapest plan for out = x @ y by calls and copied bytes; None if BLAS can't write `out`.

    Args:
        x, y, out: (..., M, K), (..., K, N), (..., M, N) with no size 0; the batch dims of x and y broadcast
            to those of `out`.
        itemsize: bytes of an element of x and y.
    """
    best, lowest = None, math.inf
    for copy_x, copy_y in itertools.product((False, True), repeat=2):
        left, right = x.dense() if copy_x else x, y.dense() if copy_y else y
        found = _calls(left, right, out)
        copied = itemsize * (copy_x * math.prod(left.shape) + copy_y * math.prod(right.shape))
        if found is not None and copied + BYTES_PER_CALL * len(found[1]) < lowest:
            best, lowest = Plan(copy_x, copy_y, *found), copied + BYTES_PER_CALL * len(found[1])
    return best


def layout(rows: int, cols: int, row_stride: int, col_stride: int) -> tuple[bool, int] | None:
    """Returns (transposed, ld) of a C-ordered matrix for BLAS; None if neither of its dims is contiguous.

    The stride of a dim of size 1 is ignored.
    """
    if cols == 1 or col_stride == 1:
        ld = row_stride if rows > 1 else cols
        if ld >= cols:
            return False, ld
    if (rows == 1 or row_stride == 1) and col_stride >= rows:
        return True, col_stride
    return None


class _Problem(NamedTuple):
    """Sizes and (row, column) strides of out = x @ y; `batch` has (size, strides in x, y, out) per dim."""

    m: int
    n: int
    k: int
    x: tuple[int, int]
    y: tuple[int, int]
    out: tuple[int, int]
    batch: tuple[tuple[int, int, int, int], ...]

    def transposed(self) -> _Problem:
        """outᵀ = yᵀ xᵀ"""
        batch = tuple((size, y_step, x_step, out_step) for size, x_step, y_step, out_step in self.batch)
        return _Problem(self.n, self.m, self.k, self.y[::-1], self.x[::-1], self.out[::-1], batch)

    def folded(self) -> _Problem:
        """Returns the problem with batch dims that don't change y as rows: one large product."""
        for i, (size, x_step, y_step, out_step) in enumerate(self.batch):
            m, x, out = self.m * size, self.x, self.out
            if self.m == 1:  # the stride of a single row is ignored
                x, out = (x_step, x[1]), (out_step, out[1])
            evenly = (x_step, out_step) == (self.m * x[0], self.m * out[0])
            if y_step == 0 and evenly and layout(m, self.k, *x) and layout(m, self.n, *out):
                rest = self.batch[:i] + self.batch[i + 1 :]
                return self._replace(m=m, x=x, out=out, batch=rest).folded()
        return self

    def collapsed(self) -> _Problem:
        """Returns the problem with adjacent batch dims merged where they are evenly spaced in all three."""
        batch: list[tuple[int, int, int, int]] = []
        for size, *strides in self.batch:
            if batch and list(batch[-1][1:]) == [size * stride for stride in strides]:
                size *= batch.pop()[0]
            batch.append((size, *strides))
        return self._replace(batch=tuple(batch))


def _problem(x: Strided, y: Strided, out: Strided) -> _Problem:
    sizes, out_steps = out.shape[:-2], out.strides[:-2]
    ndim = len(sizes)
    dims = zip(sizes, x.batch_strides(ndim), y.batch_strides(ndim), out_steps, strict=True)
    batch = tuple(dim for dim in dims if dim[0] > 1)
    (m, n), k = out.shape[-2:], x.shape[-1]
    return _Problem(m, n, k, x.strides[-2:], y.strides[-2:], out.strides[-2:], batch)


def _calls(x: Strided, y: Strided, out: Strided) -> tuple[bool, tuple[Gemm, ...]] | None:
    """Returns (swapped, calls), or None if an operand has no layout for BLAS."""
    problem = _problem(x, y, out).folded().transposed().folded().transposed().collapsed()
    if any(step < 0 for _, *steps in problem.batch for step in steps):
        return None
    out_layout = layout(problem.m, problem.n, *problem.out)
    swapped = out_layout is not None and out_layout[0]
    if swapped:
        problem = problem.transposed()
        out_layout = layout(problem.m, problem.n, *problem.out)
    x_layout = layout(problem.m, problem.k, *problem.x)
    y_layout = layout(problem.k, problem.n, *problem.y)
    if out_layout is None or x_layout is None or y_layout is None:
        return None
    return swapped, tuple(_looped(problem, x_layout, y_layout, out_layout[1]))


def _looped(
    problem: _Problem, x_layout: tuple[bool, int], y_layout: tuple[bool, int], ld_out: int
) -> Iterator[Gemm]:
    """Yields the calls: the longest batch dim is that of a call, the others are loops."""
    *loops, (batch, *steps) = sorted(problem.batch or [(1, 0, 0, 0)], key=lambda dim: dim[0])
    for index in itertools.product(*(range(size) for size, *_ in loops)):
        offsets = (sum(i * dim[j] for i, dim in zip(index, loops, strict=True)) for j in (1, 2, 3))
        b, a, c = (
            Matrix(offset, ld, step, transposed)
            for offset, step, (transposed, ld) in zip(
                offsets, steps, (x_layout, y_layout, (False, ld_out)), strict=True
            )
        )
        yield Gemm(problem.n, problem.m, problem.k, a, b, c, batch)
