"""Products of float32 matrices on the pool: every thread computes its part with OpenBLAS."""

from __future__ import annotations

import llvmlite.binding
import numpy as np
from numba import types

from .address import address_of
from .jit import device, kernel, prange, routine
from .lanes import AHEAD, fma, load, prefetch, splat, total
from .openblas import SERIAL, address, openblas
from .threads import get_num_threads

ROW_MAJOR, PLAIN, TRANSPOSED = np.int32(101), np.int32(111), np.int32(112)  # of the CBLAS interface
ONE, ZERO = np.float32(1), np.float32(0)
_ROUND = 16  # parts begin at a multiple of the rows of OpenBLAS's micro-kernels

_int, _float, _flag = types.int64, types.float32, types.int32
_library = openblas()
if _library is not None:
    llvmlite.binding.add_symbol("mytorch_sgemm", _library.sgemm)
    llvmlite.binding.add_symbol("mytorch_get_num_threads", address(_library.get_num_threads))
    llvmlite.binding.add_symbol("mytorch_set_num_threads", address(_library.set_num_threads))

# sgemm(order, transpose a, transpose b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), with addresses as ints
sgemm = types.ExternalFunction(
    "mytorch_sgemm",
    types.void(_flag, _flag, _flag, _int, _int, _int, _float, _int, _int, _int, _int, _float, _int, _int),
)
get_blas_threads = types.ExternalFunction("mytorch_get_num_threads", _flag())
set_blas_threads = types.ExternalFunction("mytorch_set_num_threads", types.void(_flag))


def is_available() -> bool:
    """Returns whether the pool's threads can call an OpenBLAS."""
    return _library is not None


@routine
def multiply_part(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, beta, by_rows, first, last):
    """Rows, or columns, `first` to `last` of c = a b + beta c."""
    if by_rows:
        a += 4 * first * (1 if ta == TRANSPOSED else lda)
        sgemm(ROW_MAJOR, ta, tb, last - first, n, k, ONE, a, lda, b, ldb, beta, c + 4 * first * ldc, ldc)
    else:
        b += 4 * first * (ldb if tb == TRANSPOSED else 1)
        sgemm(ROW_MAJOR, ta, tb, m, last - first, k, ONE, a, lda, b, ldb, beta, c + 4 * first, ldc)


@kernel
def _product(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, beta, by_rows, step):
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    size = m if by_rows else n
    for part in prange((size + step - 1) // step):
        first, last = part * step, min(size, part * step + step)
        multiply_part(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, beta, by_rows, first, last)
    set_blas_threads(before)


def shares(m: int, n: int) -> tuple[bool, int]:
    """Returns how threads split an m by n result: by rows or by columns, and the size of a part."""
    threads = get_num_threads()
    by_rows = m >= n or n < threads * _ROUND
    size = m if by_rows else n
    return by_rows, max(-(-size // (threads * _ROUND)) * _ROUND, 1)


@routine
def multiply_rows(w, x, out, first, last):
    """out = w x for the rows `first` to `last` - 1 of a contiguous matrix. Four rows are read at a time, far
    from each other: four streams of memory, each of which is prefetched."""
    columns, quarter, end = w.shape[1], (last - first + 3) // 4, last - 1
    for i in range(first, first + quarter):  # beyond the last row, that one again
        j, k, m = min(i + quarter, end), min(i + 2 * quarter, end), min(i + 3 * quarter, end)
        p, q, r, t = _row(w, i), _row(w, j), _row(w, k), _row(w, m)
        a, b, c, d, v = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO), x.ctypes.data
        for _ in range(columns // 16):
            each = load(v)
            prefetch(p + AHEAD)
            prefetch(q + AHEAD)
            prefetch(r + AHEAD)
            prefetch(t + AHEAD)
            a, b = fma(load(p), each, a), fma(load(q), each, b)
            c, d = fma(load(r), each, c), fma(load(t), each, d)
            p, q, r, t, v = p + 64, q + 64, r + 64, t + 64, v + 64
        out[i], out[j] = total(a) + _rest(w, x, i), total(b) + _rest(w, x, j)
        out[k], out[m] = total(c) + _rest(w, x, k), total(d) + _rest(w, x, m)


@device
def _row(w, i):
    return w.ctypes.data + 4 * i * w.shape[1]


@device
def _rest(w, x, i):
    """The products of the last columns, fewer than 16."""
    found = ZERO
    for j in range(x.size // 16 * 16, x.size):
        found += w[i, j] * x[j]
    return found


@kernel
def _vector_product(w, x, out):
    """out = w x, bound by memory bandwidth."""
    for block in prange((w.shape[0] + 31) // 32):
        multiply_rows(w, x, out, 32 * block, min(w.shape[0], 32 * block + 32))


@kernel
def _products(ta, tb, m, n, k, a, lda, b, ldb, c, ldc):
    """Products of the matrices at the addresses in the vectors a, b and c."""
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    for i in prange(a.size):
        sgemm(ROW_MAJOR, ta, tb, m, n, k, ONE, a[i], lda, b[i], ldb, ZERO, c[i], ldc)
    set_blas_threads(before)


def matrix_product(x: np.ndarray, y: np.ndarray, out: np.ndarray, beta: float = 0.0) -> None:
    """out = x @ y + beta * out, for float32 matrices; `out` has contiguous rows, beta is 0 or 1."""
    (m, k), n = x.shape, y.shape[1]
    if not (m and n and k):
        if not beta:
            out.fill(0)
        return
    if m == 1 and not beta and y.T.flags.c_contiguous:  # one row times a weight: bound by memory bandwidth
        _vector_product(y.T, np.ascontiguousarray(x[0], like=x), out[0])
        return
    if m * n * k < SERIAL:
        if beta:
            out += np.matmul(x, y)
        else:
            np.matmul(x, y, out=out)
        return
    x, ta, lda = operand(x)
    y, tb, ldb = operand(y)
    c, ldc = address_of(out), max(out.strides[0] // 4, n)
    a, b, beta = address_of(x), address_of(y), ONE if beta else ZERO
    _product(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, beta, *shares(m, n))


def operand(x: np.ndarray) -> tuple[np.ndarray, np.int32, int]:
    """Returns the matrix, or a copy, whether BLAS reads it transposed, and its leading dimension."""
    rows, columns = x.strides
    if columns == 4 and (rows >= 4 * x.shape[1] and rows % 4 == 0 or x.shape[0] == 1):
        return x, PLAIN, max(rows // 4, x.shape[1], 1)
    if rows == 4 and (columns >= 4 * x.shape[0] and columns % 4 == 0 or x.shape[1] == 1):
        return x, TRANSPOSED, max(columns // 4, x.shape[0], 1)
    return np.ascontiguousarray(x, like=x), PLAIN, max(x.shape[1], 1)


def stacked_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns x @ y for stacks of float32 matrices whose leading dims broadcast, each in one thread."""
    (m, k), n = x.shape[-2:], y.shape[-1]
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    out = np.empty((*batch, m, n), np.float32)
    if not out.size:
        return out
    if not k:
        out.fill(0)
        return out
    x, ta, lda = _stack(x)
    y, tb, ldb = _stack(y)
    a, b, c = (_addresses(array, batch) for array in (x, y, out))
    _products(ta, tb, m, n, k, a, lda, b, ldb, c, n)
    return out


def _stack(x: np.ndarray) -> tuple[np.ndarray, np.int32, int]:
    """Returns the same as `operand` for a stack."""
    first = x[(0,) * (x.ndim - 2)]
    matrix, transposed, ld = operand(first)
    return (x if matrix is first else np.ascontiguousarray(x, like=x)), transposed, ld


def _addresses(x: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    """Returns the address of each matrix of a stack, its leading dims broadcast to `batch`."""
    addresses = np.asarray(address_of(x))
    strides = (0,) * (len(batch) - x.ndim + 2) + tuple(
        0 if size == 1 else stride for size, stride in zip(x.shape[:-2], x.strides[:-2], strict=True)
    )
    for size, stride in zip(batch, strides, strict=True):
        addresses = addresses[..., None] + np.arange(size) * stride
    return addresses.reshape(-1)


@kernel
def column_sums(x, out):
    """out[j] = sum_i x[i, j]: of contiguous parts of the rows, then of these."""
    rows, columns = x.shape
    parts = max(1, min(16, rows // 32))  # independent of the number of threads, as the result must be
    sums = np.zeros((parts, columns), np.float32)
    for part in prange(parts):
        total = sums[part]
        for i in range(part * rows // parts, (part + 1) * rows // parts):
            row = x[i]
            for j in range(columns):
                total[j] += row[j]
    for j in range(columns):
        out[j] = sums[0, j]
    for part in range(1, parts):
        for j in range(columns):
            out[j] += sums[part, j]
