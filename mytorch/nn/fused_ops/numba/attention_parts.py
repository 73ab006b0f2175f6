"""Shared by the attention kernels: tiles of scores, and matrices given by their addresses."""

from __future__ import annotations

import numpy as np

from ....backends.address import address_of
from ....backends.gemm import ONE, PLAIN, ROW_MAJOR, ZERO, sgemm
from ....backends.jit import device, routine
from ....backends.tiles import COUNT, HAS_WIDE, LINE
from ....backends.tiles import multiply as multiply_tiles
from .approximations import INF, exp32
from .maximum import maximum32
from .memory import floats
from .philox import uniform32

PRODUCT = 1_000_000  # multiplications of a product that OpenBLAS computes without packing, with AVX-512
NEAR = 1 << 17  # bytes: rows that lie closer together than this in all stay in the caches, without packing
LOWEST = np.finfo(np.float32).min


# Here an array (batches, heads, rows, features) is (address, strides of batch, head and row in bytes), and a
# matrix (address, stride of rows in bytes).


@routine
def rows_from(array, batch, head, row):
    """The matrix that begins at a row of an array."""
    return array[0] + batch * array[1] + head * array[2] + row * array[3], array[3]


@routine
def below(matrix, count):
    """The matrix that begins `count` bytes later."""
    return matrix[0] + count, matrix[1]


@routine
def matrix_of(x):
    return x.ctypes.data, 4 * x.shape[1]


@routine
def multiply(ta, m, n, k, alpha, a, b, beta, c):
    """c = alpha a b + beta c, by OpenBLAS with a few rows of a, as stored in memory, at a time."""
    if not HAS_WIDE and n % COUNT == 0 and k * b[1] <= NEAR:
        steps = (a[1], 4) if ta == PLAIN else (4, a[1])
        multiply_tiles(alpha, (a[0], *steps), (b[0], b[1], LINE), beta, c, m, k, n // COUNT)
        return
    rows, others = (m, n * k) if ta == PLAIN else (k, m * n)
    step = max(PRODUCT // max(others, 1), 1)
    for first in range(0, max(rows, 1), step):  # at least once: a sum of no terms is zero
        if ta == PLAIN:
            m = min(step, rows - first)
            sgemm_of(ta, m, n, k, alpha, below(a, first * a[1]), b, beta, below(c, first * c[1]))
        else:
            k, first_beta = min(step, rows - first), ONE if first else beta
            sgemm_of(ta, m, n, k, alpha, below(a, first * a[1]), below(b, first * b[1]), first_beta, c)


@routine
def sgemm_of(ta, m, n, k, alpha, a, b, beta, c):
    sgemm(ROW_MAJOR, ta, PLAIN, m, n, k, alpha, a[0], a[1] // 4, b[0], b[1] // 4, beta, c[0], c[1] // 4)


@routine
def transpose(matrix, out):
    features, rows = out.shape
    for i in range(rows):
        row = floats(matrix[0] + i * matrix[1], features)
        for j in range(features):
            out[j, i] = row[j]


@routine
def fill_with_zeros(matrix, rows, features):
    for i in range(rows):
        row = floats(matrix[0] + i * matrix[1], features)
        for j in range(features):
            row[j] = ZERO


@routine
def seen(first, last, keys, mode):
    """(oldest, end): the range of keys that a query of the tile attends to."""
    _, is_causal, window, position = mode
    oldest = max(0, position + first - window + 1) if window else 0
    return (min(oldest, keys), min(position + last, keys)) if is_causal else (0, keys)


@routine
def scores_of(q, k, bias, features, first, oldest, mode, memory, s):
    """s = scale k q^T + bias, and -inf where a key is masked."""
    scale = mode[0]
    keys, rows = s.shape
    qt = memory[: features * rows].reshape(features, rows)
    transpose(q, qt)
    multiply(PLAIN, keys, rows, features, scale, k, matrix_of(qt), ZERO, matrix_of(s))
    if bias[0]:
        for i in range(rows):
            row = floats(bias[0] + i * bias[1] + 4 * oldest, keys)
            for j in range(keys):
                s[j, i] += row[j]
    set_masked(s, -INF, first, oldest, mode)


@routine
def set_masked(s, value, first, oldest, mode):
    """s = value where, in causal attention, a key is masked."""
    _, is_causal, window, position = mode
    keys, rows = s.shape
    if is_causal:
        for j in range(keys):
            distance = oldest + j - position - first  # from the first query to the key
            for i in range(min(rows, distance)):
                s[j, i] = value
            if window:
                for i in range(max(0, distance + window), rows):
                    s[j, i] = value


@routine
def softmax(s, largest, total):
    """s = exp(s - largest) for each column, not yet divided by the total."""
    keys, rows = s.shape
    for i in range(rows):
        largest[i], total[i] = LOWEST, ZERO  # not -inf: if all are -inf, s - largest is not NaN
    for j in range(keys):
        for i in range(rows):
            largest[i] = maximum32(largest[i], s[j, i])
    for j in range(keys):
        for i in range(rows):
            s[j, i] = exp32(s[j, i] - largest[i])
            total[i] += s[j, i]


@device
def dropout_factor(dropout, row, keys, key):
    """The factor of a weight in dropout, 0 or 1 / (1 - p), from its index (row keys + key)."""
    k0, k1, p, scale = dropout
    return scale if uniform32(k0, k1, np.uint64(row * keys + key)) > p else ZERO


@routine
def scale_rows(matrix, features, factors):
    for i in range(factors.size):
        row = floats(matrix[0] + i * matrix[1], features)
        for j in range(features):
            row[j] *= factors[i]


@routine
def scores_backward(p, d, delta, largest, factor, mode, dropout, row, keys, first, oldest):
    """Replaces scores p by the weights after dropout, and d = v dy^T by the gradients of the scores.

    In causal attention NaN doesn't reach masked keys, as in PyTorch's kernel.
    """
    columns, rows = p.shape
    for j in range(columns):
        for i in range(rows):
            p[j, i] = exp32(p[j, i] - largest[i]) * factor[i]
    set_masked(p, ZERO, first, oldest, mode)
    for i in range(rows):
        delta[i] = ZERO
    if dropout[2] > ZERO:
        for j in range(columns):
            for i in range(rows):
                scale = dropout_factor(dropout, row + i, keys, oldest + j)
                d[j, i] *= scale
                delta[i] += p[j, i] * d[j, i]
                if scale == ZERO:
                    p[j, i] = -p[j, i]  # remembers that the weight is dropped
        for j in range(columns):
            for i in range(rows):
                d[j, i] = abs(p[j, i]) * (d[j, i] - delta[i])
                p[j, i] = maximum32(p[j, i], ZERO) * dropout[3]
    else:
        for j in range(columns):
            for i in range(rows):
                delta[i] += p[j, i] * d[j, i]
        for j in range(columns):
            for i in range(rows):
                d[j, i] = p[j, i] * (d[j, i] - delta[i])


def addresses(*arrays: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Returns the arguments of a kernel for arrays of four dims (see `rows_from`)."""
    return [(address_of(a), *a.strides[:3]) for a in arrays]


def rows_contiguous(a: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy if BLAS can't read the rows of its matrices."""
    readable = a.strides[-1] == 4 and a.strides[-2] % 4 == 0 and a.strides[-2] >= 4 * a.shape[-1]
    return a if readable else a.copy()
