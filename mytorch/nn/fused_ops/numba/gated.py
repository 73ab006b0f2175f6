"""swiglu and geglu: f(a) b of the halves a and b along a dim. Backward recomputes f from the input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....backends.jit import prange
from ...functional.gated import geglu, swiglu
from ..elementwise import gated
from .activations import silu_derivative
from .approximations import sigmoid32
from .elementwise import kernel, require_single
from .gelu import cdf, cdf_tanh, slope, slope_tanh
from .in_order import times

_STEP = 4096  # elements of a row that a thread processes at a time


@kernel
def _swiglu(x, y):
    rows, n = y.shape
    parts = (n + _STEP - 1) // _STEP
    for part in prange(rows * parts):
        row, first = part // parts, part % parts * _STEP
        a, b = x[row, 0, first : first + _STEP], x[row, 1, first : first + _STEP]
        out = y[row, first : first + _STEP]
        for i in range(out.size):
            out[i] = times(a[i], sigmoid32(a[i])) * b[i]


@kernel
def _swiglu_backward(x, dy, dx):
    rows, n = dy.shape
    parts = (n + _STEP - 1) // _STEP
    for part in prange(rows * parts):
        row, first = part // parts, part % parts * _STEP
        a, b = x[row, 0, first : first + _STEP], x[row, 1, first : first + _STEP]
        da, db = dx[row, 0, first : first + _STEP], dx[row, 1, first : first + _STEP]
        dout = dy[row, first : first + _STEP]
        for i in range(dout.size):
            s = sigmoid32(a[i])
            da[i] = dout[i] * b[i] * silu_derivative(a[i], s)
            db[i] = dout[i] * times(a[i], s)


@kernel
def _geglu(x, exact, y):
    rows, n = y.shape
    parts = (n + _STEP - 1) // _STEP
    for part in prange(rows * parts):
        row, first = part // parts, part % parts * _STEP
        a, b = x[row, 0, first : first + _STEP], x[row, 1, first : first + _STEP]
        out = y[row, first : first + _STEP]
        if exact:
            for i in range(out.size):
                out[i] = times(a[i], cdf(a[i])) * b[i]
        else:
            for i in range(out.size):
                out[i] = times(a[i], cdf_tanh(a[i])) * b[i]


@kernel
def _geglu_backward(x, dy, exact, dx):
    rows, n = dy.shape
    parts = (n + _STEP - 1) // _STEP
    for part in prange(rows * parts):
        row, first = part // parts, part % parts * _STEP
        a, b = x[row, 0, first : first + _STEP], x[row, 1, first : first + _STEP]
        da, db = dx[row, 0, first : first + _STEP], dx[row, 1, first : first + _STEP]
        dout = dy[row, first : first + _STEP]
        if exact:
            for i in range(dout.size):
                p = cdf(a[i])
                da[i] = dout[i] * b[i] * slope(a[i], p)
                db[i] = dout[i] * times(a[i], p)
        else:
            for i in range(dout.size):
                p = cdf_tanh(a[i])
                da[i] = dout[i] * b[i] * slope_tanh(a[i], p)
                db[i] = dout[i] * times(a[i], p)


@swiglu.fused("cpu")
def _(x: np.ndarray, dim: int) -> tuple:
    return _gated(x, dim, _swiglu, _swiglu_backward)


@geglu.fused("cpu")
def _(x: np.ndarray, dim: int, approximate: str) -> tuple:
    return _gated(x, dim, _geglu, _geglu_backward, approximate == "none")


def _gated(x: np.ndarray, dim: int, forward: Callable, backward: Callable, *scalars: bool) -> tuple:
    require_single(x)
    return gated(x, dim, forward, backward, *scalars)
