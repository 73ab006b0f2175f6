"""How a product of strided arrays is put to BLAS: which calls, with which strides, and what to copy before.

BLAS thinks in columns: a matrix is a pointer and a leading dimension `ld`, element (i, j) lies at i + j ld.
A C-ordered (M, N) is an (N, M) there, so out = x @ y becomes outᵀ = yᵀ xᵀ and nothing moves. This module
touches no memory: shapes and strides go in, calls come out, for NumPy's arrays and CuPy's.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

# What one more call may cost, in bytes that are copied in that time. An estimate, not measured.
BYTES_PER_CALL = 4 << 20


class Strided(NamedTuple):
    """Shape, and strides in elements, of an array of two or more dims."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def dense(self) -> Strided:
        """What a copy for BLAS looks like: its matrices one after the other, each transposed if it is here; a
        batch dim that repeats one matrix is copied once."""
        batch = zip(self.shape[:-2], self.strides[:-2], strict=True)
        shape = (*(1 if stride == 0 else size for size, stride in batch), *self.shape[-2:])
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if self.strides[-2] == 1:
            strides[-2:] = 1, shape[-2]
        return Strided(shape, tuple(strides))

    def batch_strides(self, ndim: int) -> list[int]:
        """Strides of the batch broadcast to `ndim` dims; 0 where the same matrix is read again."""
        own = [s if n > 1 else 0 for n, s in zip(self.shape[:-2], self.strides[:-2], strict=True)]
        return [0] * (ndim - len(own)) + own


class Matrix(NamedTuple):
    """An operand of a call: its first element, its leading dimension, and how far the batch's next one is."""

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
    """How to compute out = x @ y: copy these first, then make the calls; `a` is y, or x where `swapped`."""

    copy_x: bool
    copy_y: bool
    swapped: bool
    calls: tuple[Gemm, ...]


def strided(array: Any) -> Strided:
    """Shape and strides of an array; strides that BLAS can't have (negative, half an element) become -1."""
    size = array.itemsize
    strides = (s // size if s >= 0 and s % size == 0 else -1 for s in array.strides)
    return Strided(tuple(array.shape), tuple(-1 if s < 0 else s for s in strides))


@functools.lru_cache(maxsize=4096)  # a training step asks for the same products again and again
def plan(x: Strided, y: Strided, out: Strided, itemsize: int) -> Plan | None:
    """The cheapest way to out = x @ y, counting calls and copied bytes; None if BLAS can't write `out`.

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
    """(transposed, ld) of a C-ordered matrix as BLAS may read it; None if neither of its dims is contiguous.

    A dim of size 1 has no stride that matters.
    """
    if cols == 1 or col_stride == 1:
        ld = row_stride if rows > 1 else cols
        if ld >= cols:
            return False, ld
    if (rows == 1 or row_stride == 1) and col_stride >= rows:
        return True, col_stride
    return None


class _Problem(NamedTuple):
    """Sizes and (row, column) strides of out = x @ y; `batch` has (size, step in x, in y, in out) per dim."""

    m: int
    n: int
    k: int
    x: tuple[int, int]
    y: tuple[int, int]
    out: tuple[int, int]
    batch: tuple[tuple[int, int, int, int], ...]

    def transposed(self) -> _Problem:
        """outᵀ = yᵀ xᵀ"""
        batch = tuple((size, of_y, of_x, of_out) for size, of_x, of_y, of_out in self.batch)
        return _Problem(self.n, self.m, self.k, self.y[::-1], self.x[::-1], self.out[::-1], batch)

    def folded(self) -> _Problem:
        """Batch dims along which y stays the same become rows: one large product, not many small ones."""
        for i, (size, of_x, of_y, of_out) in enumerate(self.batch):
            m, x, out = self.m * size, self.x, self.out
            if self.m == 1:  # the only row has no stride that matters
                x, out = (of_x, x[1]), (of_out, out[1])
            evenly = (of_x, of_out) == (self.m * x[0], self.m * out[0])
            if of_y == 0 and evenly and layout(m, self.k, *x) and layout(m, self.n, *out):
                rest = self.batch[:i] + self.batch[i + 1 :]
                return self._replace(m=m, x=x, out=out, batch=rest).folded()
        return self

    def collapsed(self) -> _Problem:
        """Neighbouring batch dims that are evenly spaced in all three become one."""
        batch: list[tuple[int, int, int, int]] = []
        for size, *strides in self.batch:
            if batch and list(batch[-1][1:]) == [size * stride for stride in strides]:
                size *= batch.pop()[0]
            batch.append((size, *strides))
        return self._replace(batch=tuple(batch))


def _problem(x: Strided, y: Strided, out: Strided) -> _Problem:
    sizes, of_out = out.shape[:-2], out.strides[:-2]
    ndim = len(sizes)
    dims = zip(sizes, x.batch_strides(ndim), y.batch_strides(ndim), of_out, strict=True)
    batch = tuple(dim for dim in dims if dim[0] > 1)
    (m, n), k = out.shape[-2:], x.shape[-1]
    return _Problem(m, n, k, x.strides[-2:], y.strides[-2:], out.strides[-2:], batch)


def _calls(x: Strided, y: Strided, out: Strided) -> tuple[bool, tuple[Gemm, ...]] | None:
    """(swapped, calls), or None if an operand has no layout for BLAS."""
    problem = _problem(x, y, out).folded().transposed().folded().transposed().collapsed()
    if any(step < 0 for _, *steps in problem.batch for step in steps):
        return None
    of_out = layout(problem.m, problem.n, *problem.out)
    swapped = of_out is not None and of_out[0]
    if swapped:
        problem = problem.transposed()
        of_out = layout(problem.m, problem.n, *problem.out)
    of_x = layout(problem.m, problem.k, *problem.x)
    of_y = layout(problem.k, problem.n, *problem.y)
    if of_out is None or of_x is None or of_y is None:
        return None
    return swapped, tuple(_looped(problem, of_x, of_y, of_out[1]))


def _looped(problem: _Problem, of_x: tuple[bool, int], of_y: tuple[bool, int], ld_out: int) -> Iterator[Gemm]:
    """A call takes one batch dim, the longest; the others are a loop over calls."""
    *loops, (batch, *steps) = sorted(problem.batch or [(1, 0, 0, 0)], key=lambda dim: dim[0])
    for index in itertools.product(*(range(size) for size, *_ in loops)):
        offsets = (sum(i * dim[j] for i, dim in zip(index, loops, strict=True)) for j in (1, 2, 3))
        b, a, c = (
            Matrix(offset, ld, step, transposed)
            for offset, step, (transposed, ld) in zip(
                offsets, steps, (of_x, of_y, (False, ld_out)), strict=True
            )
        )
        yield Gemm(problem.n, problem.m, problem.k, a, b, c, batch)
