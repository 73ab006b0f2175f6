"""
Products of small matrices in compiled loops, a tile of a few rows and 16 or 32 columns in registers at
a time.

OpenBLAS packs its operands in each call, which takes as long as a small product. Here a matrix is read as it
lies, or is packed once and multiplied many times, as that of a recurrent layer in each step.

A *panel* is 16 columns of the second matrix. Matrices are (address, bytes from one row to the next, …).

Source: Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
https://doi.org/10.1145/1356052.1356053
"""

from __future__ import annotations

import numpy as np

from .jit import device, has_instructions, kernel, prange, routine
from .lanes import COUNT, fma, load, repeated, splat, store

ZERO = np.float32(0)
LINE = 4 * COUNT  # bytes of a row of a panel
HAS_WIDE = has_instructions("avx512f")
ROWS, PANELS = (8, 2) if HAS_WIDE else (4, 1)  # of a tile: its sums are in 16 of 32 registers, or in 8 of 16


def packed(x: np.ndarray) -> np.ndarray:
    """Returns the panels of a float32 matrix (k, n), (n / 16, k, 16), zeros behind the last column."""
    panels = np.empty((-(-x.shape[1] // COUNT), x.shape[0], COUNT), np.float32, like=x)
    _pack(x, panels)
    return panels


@kernel
def _pack(x, panels):
    k, n = x.shape
    for p in prange(panels.shape[0]):
        panel, first = panels[p], COUNT * p
        if first + COUNT <= n:
            for i in range(k):
                for j in range(COUNT):
                    panel[i, j] = x[i, first + j]
        else:
            for i in range(k):
                for j in range(COUNT):
                    panel[i, j] = x[i, first + j] if first + j < n else ZERO


def in_panels(x: np.ndarray) -> np.ndarray:
    """Returns a float32 matrix as it is, if its rows consist of whole panels; else its panels."""
    return x if x.flags.c_contiguous and x.shape[1] % COUNT == 0 else packed(x)


@device
def matrix_of(x):
    """A matrix or packed panels as the second matrix of `multiply`."""
    if x.ndim == 2:
        return x.ctypes.data, 4 * x.shape[1], LINE
    return x.ctypes.data, LINE, LINE * x.shape[1]


@routine
def multiply(alpha, x, w, beta, y, rows, k, panels):
    """y = alpha x w + beta y

    Args:
        x: (address, bytes from row to row, bytes from column to column) of (rows, k).
        w: (address, bytes from row to row, bytes from panel to panel) of (k, 16 panels).
        beta: 0 or 1; with 0 y isn't read.
        y: (address, bytes from row to row) of (rows, 16 panels).
    """
    for p in range(0, panels, PANELS):
        panel, out, beyond = w[0] + p * w[2], y[0] + p * LINE, w[2] if p + 1 < panels else 0
        for i in range(0, rows, ROWS):
            if ROWS == 8:
                eight_rows(alpha, x, panel, w[1], beyond, beta, out, y[1], i, rows - 1, k)
            else:
                four_rows(alpha, x, panel, w[1], beta, out, y[1], i, rows - 1, k)


@device
def _four(address, step, i, last):
    """The addresses of rows i to i + 3; beyond the last row that one again, so that each tile is whole."""
    return (
        address + step * min(i, last), address + step * min(i + 1, last),
        address + step * min(i + 2, last), address + step * min(i + 3, last),
    )


@device
def _store(alpha, p, q, r, s, beta, a, b, c, d):
    """Stores four rows; all are read before one is stored, as rows may be the same one."""
    alpha, zero = splat(alpha), splat(ZERO)
    t, u, v, z = (zero, zero, zero, zero) if beta == ZERO else (load(a), load(b), load(c), load(d))
    p, q, r, s = fma(alpha, p, t), fma(alpha, q, u), fma(alpha, r, v), fma(alpha, s, z)
    store(a, p)
    store(b, q)
    store(c, r)
    store(d, s)


@routine
def four_rows(alpha, x, w, step, beta, y, y_step, i, last, k):
    """Rows i to i + 3 of the product with a panel."""
    a, b, c, d = _four(x[0], x[1], i, last)
    p, q, r, s = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    for j in range(k):
        row, at = load(w + step * j), x[2] * j
        p, q = fma(repeated(a + at), row, p), fma(repeated(b + at), row, q)
        r, s = fma(repeated(c + at), row, r), fma(repeated(d + at), row, s)
    a, b, c, d = _four(y, y_step, i, last)
    _store(alpha, p, q, r, s, beta, a, b, c, d)


@routine
def eight_rows(alpha, x, w, step, beyond, beta, y, y_step, i, last, k):
    """Rows i to i + 7 of the product with a panel and that `beyond` bytes behind it; 0: with one panel."""
    (a, b, c, d), (e, f, g, h) = _four(x[0], x[1], i, last), _four(x[0], x[1], i + 4, last)
    p, q, r, s = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    t, u, v, z = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    p2, q2, r2, s2 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    t2, u2, v2, z2 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    for j in range(k):
        row, row2, at = load(w + step * j), load(w + beyond + step * j), x[2] * j
        p, p2 = fma(repeated(a + at), row, p), fma(repeated(a + at), row2, p2)
        q, q2 = fma(repeated(b + at), row, q), fma(repeated(b + at), row2, q2)
        r, r2 = fma(repeated(c + at), row, r), fma(repeated(c + at), row2, r2)
        s, s2 = fma(repeated(d + at), row, s), fma(repeated(d + at), row2, s2)
        t, t2 = fma(repeated(e + at), row, t), fma(repeated(e + at), row2, t2)
        u, u2 = fma(repeated(f + at), row, u), fma(repeated(f + at), row2, u2)
        v, v2 = fma(repeated(g + at), row, v), fma(repeated(g + at), row2, v2)
        z, z2 = fma(repeated(h + at), row, z), fma(repeated(h + at), row2, z2)
    a, b, c, d = _four(y, y_step, i, last)
    _store(alpha, p, q, r, s, beta, a, b, c, d)
    if beyond:
        _store(alpha, p2, q2, r2, s2, beta, a + LINE, b + LINE, c + LINE, d + LINE)
    if i + 4 <= last:  # else these are the last row again
        a, b, c, d = _four(y, y_step, i + 4, last)
        _store(alpha, t, u, v, z, beta, a, b, c, d)
        if beyond:
            _store(alpha, t2, u2, v2, z2, beta, a + LINE, b + LINE, c + LINE, d + LINE)
