"""Rotary embedding. Queries and keys are read as strided views of one projection, without a copy."""

from __future__ import annotations

import numpy as np

from ....backends.address import address_of
from ....backends.jit import prange
from ...functional.rotary import angle_vjps, rotary_embedding
from ..elementwise import rows_of_features
from .elementwise import kernel, require_single
from .memory import floats


@kernel
def _rotate(y, x, x_strides, cos, cos_strides, sin, sin_strides, sign, interleaved):
    """y (L, M, T, D) = x rotated; x, cos and sin are addresses, with strides along the first three dims."""
    _, m, t, size = y.shape
    half = size // 2
    for row in prange(y.size // size):
        i, j, k = row // (m * t), row // t % m, row % t
        at = x + i * x_strides[0] + j * x_strides[1] + k * x_strides[2]
        c = floats(cos + i * cos_strides[0] + j * cos_strides[1] + k * cos_strides[2], half)
        s = floats(sin + i * sin_strides[0] + j * sin_strides[1] + k * sin_strides[2], half)
        out = y[i, j, k]
        if interleaved:
            pairs = floats(at, size)
            for e in range(half):
                a, b = pairs[2 * e], pairs[2 * e + 1]
                out[2 * e] = a * c[e] - sign * b * s[e]
                out[2 * e + 1] = sign * a * s[e] + b * c[e]
        else:
            a, b = floats(at, half), floats(at + 4 * half, half)
            first, second = out[:half], out[half:]
            for e in range(half):
                first[e] = a[e] * c[e] - sign * b[e] * s[e]
                second[e] = sign * a[e] * s[e] + b[e] * c[e]


@rotary_embedding.fused("cpu")
def _(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> tuple:
    require_single(x, cos, sin)
    angles = [rows_of_features(a, (*x.shape[:-1], x.shape[-1] // 2)) for a in (cos, sin)]

    def rotate(x, sign):
        y = np.empty(x.shape, x.dtype)
        if y.size:
            x = rows_of_features(x, x.shape)
            arguments = [argument for a in (x, *angles) for argument in (address_of(a), a.strides[:3])]
            _rotate(y.reshape(x.shape), *arguments, sign, interleaved)
        return y

    return rotate(x, np.float32(1)), (
        lambda g: rotate(g, np.float32(-1)),
        *angle_vjps(x, cos, sin, interleaved),
    )
