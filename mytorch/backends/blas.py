"""Products of raw arrays: every matrix product of mytorch goes through here."""

from __future__ import annotations

import functools
import math
from types import ModuleType

import numpy as np

from . import cublas, threads  # noqa: F401 - cuBLAS multiplies CuPy's arrays
from .device import RawArray, device_of, is_on_host, is_raw
from .dtypes import is_half
from .openblas import SERIAL


def product(x: RawArray, y: RawArray) -> RawArray:
    """Returns x @ y, with half precision accumulated in float32.

    If `y` is one matrix, the leading dims of `x` become rows: one large product instead of many small ones.
    BLAS reads transposed and strided operands without a copy.

    Args:
        x: (..., m, k).
        y: (..., k, n), of the same dtype.
    """
    if not _is_on_cpu(x) or not _is_on_cpu(y):
        if not is_raw(x) or not is_raw(y):
            return np.matmul(x, y)  # Tensors, in an op that is differentiated again
        return device_of(x).kind.product(x, y)
    if x.dtype.itemsize == 2 and is_half(x.dtype):  # NumPy would accumulate in float16, without BLAS
        return product(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    if y.ndim == 2 and x.ndim > 2:
        return _multiply(rows(x), y).reshape(*x.shape[:-1], y.shape[-1])
    return _multiply(x, y)


def _is_on_cpu(x: RawArray) -> bool:
    return isinstance(x, np.ndarray) or getattr(x, "stands_for_cpu", False)


def _multiply(x: RawArray, y: RawArray) -> RawArray:
    """Returns x @ y, computed on the pool of threads if it runs, so that no second pool competes with it."""
    if x.dtype != np.float32 or y.dtype != np.float32 or x.ndim < 2 or y.ndim < 2 or not threads.running:
        return np.matmul(x, y)
    gemm = _gemm()
    if gemm is None or x.size * y.shape[-1] < SERIAL:
        return np.matmul(x, y)
    if x.ndim > 2 or y.ndim > 2:
        return gemm.stacked_product(x, y)
    out = np.empty((x.shape[0], y.shape[1]), np.float32, like=x)
    gemm.matrix_product(x, y, out)
    return out


@functools.cache
def _gemm() -> ModuleType | None:
    """Returns the module of products on the pool; None without an OpenBLAS that its threads can call."""
    from . import gemm

    return gemm if gemm.is_available() else None


def add_product(x: RawArray, y: RawArray, out: RawArray, beta: float = 1) -> None:
    """Computes out = x @ y + beta out for (stacks of) matrices; beta is 0 or 1; with 0 `out` isn't read."""
    if not _is_on_cpu(x):
        device_of(x).kind.add_product(x, y, out, beta)
    elif (
        x.ndim == y.ndim == 2 and x.dtype == y.dtype == out.dtype == np.float32
        and out.strides[-1] == 4 and threads.running and (gemm := _gemm()) is not None
    ):
        gemm.matrix_product(x, y, out, beta)
    elif x.dtype.itemsize == 2 and is_half(x.dtype):  # summed in float32 and rounded once, as cuBLAS does
        total = product(x.astype(np.float32), y.astype(np.float32))
        out[...] = total + out if beta else total
    elif beta:
        out += product(x, y)
    else:
        np.matmul(x, y, out=out)


def rows(x: RawArray) -> RawArray:
    """Returns `x` as a matrix: all dims but the last become rows."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def column_sums(x: RawArray) -> RawArray:
    """Returns the sums of the columns of float32 or float64 matrices, (..., m, n) to (..., n).

    On the CPU it is a product with ones, several times as fast as np.sum and more exact, because BLAS adds in
    blocks and np.sum row after row.
    """
    if not _is_on_cpu(x):
        return np.sum(x, axis=-2)
    if x.dtype == np.float32 and x.ndim == 2 and threads.running and _gemm() is not None:
        out = np.empty(x.shape[1:], x.dtype, like=x)
        _gemm().column_sums(np.ascontiguousarray(x, like=x), out)
        return out
    return np.matmul(_ones(x.shape[-2], x.dtype), x)


def row_sums(x: RawArray) -> RawArray:
    """Returns the sums of float32 or float64 rows, (..., n) to (..., 1); on the CPU a product with ones."""
    if not threads.running and is_on_host(x):
        return np.matmul(x, _ones(x.shape[-1], x.dtype)[:, None])
    return np.sum(x, axis=-1, keepdims=True)


def dots(sums: str, x: RawArray, y: RawArray) -> RawArray:
    """Returns sums of x * y: `dots("ij->i", x, y)` is `np.einsum("ij,ij->i", x, y)`.

    On a GPU einsum would use CuPy's cuBLAS, which can't be captured in a graph.
    """
    if is_on_host(x):
        return np.einsum(f"{sums.partition('->')[0]},{sums}", x, y)
    return np.einsum(sums, x * y)


def row_dots(x: RawArray, y: RawArray) -> RawArray:
    """Returns the dot products of the rows of two matrices, (m, n) to (m, 1)."""
    return dots("ij->i", x, y)[:, None]


def column_dots(x: RawArray, y: RawArray) -> RawArray:
    """Returns the dot products of the columns of two matrices, (m, n) to (n,)."""
    return column_sums(x * y)


def _ones(n: int, dtype: np.dtype) -> np.ndarray:
    return _cached_ones(n, dtype) if n <= 1 << 16 else np.ones(n, dtype)


@functools.lru_cache(maxsize=64)
def _cached_ones(n: int, dtype: np.dtype) -> np.ndarray:
    ones = np.ones(n, dtype)
    ones.flags.writeable = False  # shared by all callers
    return ones
