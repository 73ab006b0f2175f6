"""What the attention kernels have in common: tiles of scores, and matrices that are addresses."""

from __future__ import annotations

import numpy as np

from ....backends.address import address_of
from ....backends.gemm import ONE, PLAIN, ROW_MAJOR, ZERO, sgemm
from ....backends.jit import device
from .approximations import INF, exp32
from .maximum import maximum32
from .memory import floats
from .philox import uniform32

PRODUCT = 1_000_000  # multiplications; up to so many, OpenBLAS reads the matrices where they are
LOWEST = np.finfo(np.float32).min


# Here an array (batches, heads, rows, features) is (address, bytes from batch to batch, head to head, row to
# row), and a matrix (address, bytes from row to row).


@device
def rows_from(array, batch, head, row):
    """The matrix that begins at a row of an array."""
    return array[0] + batch * array[1] + head * array[2] + row * array[3], array[3]


@device
def below(matrix, count):
    """The matrix that begins so many bytes later."""
    return matrix[0] + count, matrix[1]


@device
def matrix_of(x):
    return x.ctypes.data, 4 * x.shape[1]


@device
def multiply(ta, m, n, k, alpha, a, b, beta, c):
    """c = alpha a b + beta c, with a few rows of a, as they lie in memory, at a time."""
    rows, others = (m, n * k) if ta == PLAIN else (k, m * n)
    step = max(PRODUCT // max(others, 1), 1)
    for first in range(0, max(rows, 1), step):  # once at least: a sum of no terms is zero
        if ta == PLAIN:
            m = min(step, rows - first)
            sgemm_of(ta, m, n, k, alpha, below(a, first * a[1]), b, beta, below(c, first * c[1]))
        else:
            k, kept = min(step, rows - first), ONE if first else beta
            sgemm_of(ta, m, n, k, alpha, below(a, first * a[1]), below(b, first * b[1]), kept, c)


@device
def sgemm_of(ta, m, n, k, alpha, a, b, beta, c):
    sgemm(ROW_MAJOR, ta, PLAIN, m, n, k, alpha, a[0], a[1] // 4, b[0], b[1] // 4, beta, c[0], c[1] // 4)


@device
def transpose(matrix, out):
    features, rows = out.shape
    for i in range(rows):
        row = floats(matrix[0] + i * matrix[1], features)
        for j in range(features):
            out[j, i] = row[j]


@device
def fill_with_zeros(matrix, rows, features):
    for i in range(rows):
        row = floats(matrix[0] + i * matrix[1], features)
        for j in range(features):
            row[j] = ZERO


@device
def seen(first, last, keys, mode):
    """(oldest, end): the keys that a query of the tile may see."""
    _, is_causal, window, position = mode
    oldest = max(0, position + first - window + 1) if window else 0
    return (min(oldest, keys), min(position + last, keys)) if is_causal else (0, keys)


@device
def scores_of(q, k, bias, features, first, oldest, mode, memory, s):
    """s = scale k q^T + bias, and -inf where a query may not look; of three matrices and their numbers."""
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
    set_unseen(s, -INF, first, oldest, mode)


@device
def set_unseen(s, value, first, oldest, mode):
    """s = value where, in causal attention, a query may not look."""
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


@device
def softmax(s, largest, total):
    """s = exp(s - largest) for each column; without its division by the total."""
    keys, rows = s.shape
    for i in range(rows):
        largest[i], total[i] = LOWEST, ZERO  # not -inf: where all is -inf, s - largest is, too
    for j in range(keys):
        for i in range(rows):
            largest[i] = maximum32(largest[i], s[j, i])
    for j in range(keys):
        for i in range(rows):
            s[j, i] = exp32(s[j, i] - largest[i])
            total[i] += s[j, i]


@device
def kept_weight(dropout, row, keys, key):
    """What a weight is multiplied by, 0 or 1 / (1 - p), from its number (row keys + key)."""
    k0, k1, p, scale = dropout
    return scale if uniform32(k0, k1, np.uint64(row * keys + key)) > p else ZERO


@device
def scale_rows(matrix, features, factors):
    for i in range(factors.size):
        row = floats(matrix[0] + i * matrix[1], features)
        for j in range(features):
            row[j] *= factors[i]


@device
def gradients_of_scores(p, d, along, largest, factor, mode, dropout, row, keys, first, oldest):
    """From p = scores and d = v g^T to d = the gradients of the scores and p = the weights, after dropout.

    In causal attention a newer key has no part in what is NaN for a query, as in PyTorch's kernel.
    """
    columns, rows = p.shape
    for j in range(columns):
        for i in range(rows):
            p[j, i] = exp32(p[j, i] - largest[i]) * factor[i]
    set_unseen(p, ZERO, first, oldest, mode)
    if dropout[2] > ZERO:
        for j in range(columns):
            for i in range(rows):
                kept = kept_weight(dropout, row + i, keys, oldest + j)
                d[j, i] = p[j, i] * (d[j, i] * kept - along[i])
                p[j, i] *= kept
    else:
        for j in range(columns):
            for i in range(rows):
                d[j, i] = p[j, i] * (d[j, i] - along[i])


@device
def inner_products(x, y, features, out):
    """out[i] = the inner product of row i of two matrices"""
    for i in range(out.size):
        x_row, y_row = floats(x[0] + i * x[1], features), floats(y[0] + i * y[1], features)
        total = ZERO
        for j in range(features):
            total += x_row[j] * y_row[j]
        out[i] = total


def places(*arrays):
    """What kernels get for arrays of four dims (see `rows_from`)."""
    return [(address_of(a), *a.strides[:3]) for a in arrays]


def rows_contiguous(a):
    """The array, or a copy if BLAS can't read the rows of its matrices."""
    readable = a.strides[-1] == 4 and a.strides[-2] % 4 == 0 and a.strides[-2] >= 4 * a.shape[-1]
    return a if readable else a.copy()
