"""Rotary embedding. Queries and keys are read as strided views of one projection, without a copy."""

from __future__ import annotations

import math

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.rotary import angle_vjps, rotary_embedding
from ..elementwise import rows_of_features
from .elementwise import load32, row_launcher, store, tile
from .launch import require_dtypes


@triton.jit
def _rotate(
    y_ptr, x_ptr, x_0, x_1, x_2, cos_ptr, cos_0, cos_1, cos_2, sin_ptr, sin_0, sin_1, sin_2, m, t, sign,
    rows, half, INTERLEAVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y (L, M, T, D), contiguous, = x rotated; x, cos and sin have strides along the first three dims."""
    # Shapes: y, x (rows / m / t, m, t, 2 * half); cos, sin (rows / m / t, m, t, half)
    row, column, inside = tile(rows, half, ROWS, BLOCK)
    i, j, k = row // (m * t), row // t % m, row % t
    first, second = column, column + half
    if INTERLEAVED:
        first, second = 2 * column, 2 * column + 1
    x_at = i * x_0 + j * x_1 + k * x_2
    a, b = load32(x_ptr, x_at + first, inside), load32(x_ptr, x_at + second, inside)
    c = load32(cos_ptr, i * cos_0 + j * cos_1 + k * cos_2 + column, inside)
    s = load32(sin_ptr, i * sin_0 + j * sin_1 + k * sin_2 + column, inside) * sign
    store(y_ptr, row * (2 * half) + first, a * c - b * s, inside)
    store(y_ptr, row * (2 * half) + second, a * s + b * c, inside)


@rotary_embedding.fused("cuda")
def _(x: RawArray, cos: RawArray, sin: RawArray, interleaved: bool) -> tuple:
    require_dtypes(x, cos, sin)
    angles = [rows_of_features(a, (*x.shape[:-1], x.shape[-1] // 2)) for a in (cos, sin)]
    start = row_launcher(_rotate, INTERLEAVED=interleaved)

    def rotate(x, sign):
        y = np.empty(x.shape, x.dtype, like=x)
        if y.size:
            x = rows_of_features(x, x.shape)
            _, m, t, size = x.shape
            arrays = [(a, *(s // a.itemsize for s in a.strides[:3])) for a in (x, *angles)]
            start(math.prod(x.shape[:3]), size // 2, y, *sum(arrays, ()), m, t, sign)
        return y

    return rotate(x, 1.0), (lambda g: rotate(g, -1.0), *angle_vjps(x, cos, sin, interleaved))
