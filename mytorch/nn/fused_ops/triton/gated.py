"""swiglu and geglu: f(a) b of the halves a and b along a dim. Backward starts from the input again."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ...functional.gated import geglu, swiglu
from .. import elementwise
from .activations import sigmoid32, silu_slope
from .elementwise import row_starter, single, store, tile
from .gelu import cdf, slope
from .launch import require_dtypes


@triton.jit
def _forward(x_ptr, y_ptr, rows, n, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, column, inside = tile(rows, n, ROWS, BLOCK)
    at = row * (2 * n) + column
    a, b = single(x_ptr, at, inside), single(x_ptr, at + n, inside)
    p = sigmoid32(a) if KIND == "swiglu" else cdf(a, KIND == "geglu")
    store(y_ptr, row * n + column, a * p * b, inside)


@triton.jit
def _backward(x_ptr, g_ptr, d_ptr, rows, n, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, column, inside = tile(rows, n, ROWS, BLOCK)
    at = row * (2 * n) + column
    a, b = single(x_ptr, at, inside), single(x_ptr, at + n, inside)
    g = single(g_ptr, row * n + column, inside)
    if KIND == "swiglu":
        p = sigmoid32(a)
        da = silu_slope(a, p)
    else:
        p = cdf(a, KIND == "geglu")
        da = slope(a, p, KIND == "geglu")
    store(d_ptr, at, g * b * da, inside)
    store(d_ptr, at + n, g * a * p, inside)


@swiglu.fused("cuda")
def _(x: Any, dim: int) -> tuple:
    return _gated(x, dim, "swiglu")


@geglu.fused("cuda")
def _(x: Any, dim: int, approximate: str) -> tuple:
    return _gated(x, dim, "geglu" if approximate == "none" else "geglu_tanh")


def _gated(x: Any, dim: int, kind: str) -> tuple:
    require_dtypes(x)
    forward, backward = row_starter(_forward, KIND=kind), row_starter(_backward, KIND=kind)
    return elementwise.gated(
        x,
        dim,
        lambda x, y: forward(*y.shape, x, y),
        lambda x, g, d: backward(*g.shape, x, g, d),
    )
