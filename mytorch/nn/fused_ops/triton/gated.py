"""swiglu and geglu: f(a) b of the halves a and b along a dim. Backward recomputes f from the input."""

from __future__ import annotations

import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.gated import geglu, swiglu
from .. import elementwise
from .activations import sigmoid32, silu_derivative
from .elementwise import load32, row_launcher, store, tile
from .gelu import cdf, slope
from .launch import require_dtypes


@triton.jit
def _forward(x_ptr, y_ptr, rows, n, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Shapes: x (rows, 2, n); y (rows, n)
    row, column, inside = tile(rows, n, ROWS, BLOCK)
    at = row * (2 * n) + column
    a, b = load32(x_ptr, at, inside), load32(x_ptr, at + n, inside)
    p = sigmoid32(a) if KIND == "swiglu" else cdf(a, KIND == "geglu")
    store(y_ptr, row * n + column, a * p * b, inside)


@triton.jit
def _backward(x_ptr, dy_ptr, dx_ptr, rows, n, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Shapes: x, dx (rows, 2, n); dy (rows, n)
    row, column, inside = tile(rows, n, ROWS, BLOCK)
    at = row * (2 * n) + column
    a, b = load32(x_ptr, at, inside), load32(x_ptr, at + n, inside)
    dy = load32(dy_ptr, row * n + column, inside)
    if KIND == "swiglu":
        p = sigmoid32(a)
        da = silu_derivative(a, p)
    else:
        p = cdf(a, KIND == "geglu")
        da = slope(a, p, KIND == "geglu")
    store(dx_ptr, at, dy * b * da, inside)
    store(dx_ptr, at + n, dy * (a * p), inside)


@swiglu.fused("cuda")
def _(x: RawArray, dim: int) -> tuple:
    return _gated(x, dim, "swiglu")


@geglu.fused("cuda")
def _(x: RawArray, dim: int, approximate: str) -> tuple:
    return _gated(x, dim, "geglu" if approximate == "none" else "geglu_tanh")


def _gated(x: RawArray, dim: int, kind: str) -> tuple:
    require_dtypes(x)
    forward, backward = row_launcher(_forward, KIND=kind), row_launcher(_backward, KIND=kind)
    return elementwise.gated(
        x, dim, lambda x, y: forward(*y.shape, x, y), lambda x, dy, dx: backward(*dy.shape, x, dy, dx)
    )
