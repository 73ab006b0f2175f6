"""swiglu and geglu: f(a) b of the halves a and b along a dim. Backward recomputes f from the input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....backends.jit import device, prange
from ...functional.gated import geglu, swiglu
from ..elementwise import gated
from .activations import silu_derivative
from .approximations import sigmoid32
from .elementwise import kernel, require_single
from .gelu import cdf, cdf_tanh, slope, slope_tanh

_STEP = 4096  # elements of a row that a thread processes at a time


@device
def _parts(rows, n):
    """The number of parts of at most _STEP elements into which all rows are split."""
    return rows * ((n + _STEP - 1) // _STEP)


@device
def _part(x, n, part):
    """A part of the halves of a row of (rows, 2, n)."""
    steps = (n + _STEP - 1) // _STEP
    row, first = part // steps, part % steps * _STEP
    return x[row, 0, first : first + _STEP], x[row, 1, first : first + _STEP]


@device
def _part_of_result(y, part):
    """The same part of (rows, n)."""
    steps = (y.shape[1] + _STEP - 1) // _STEP
    first = part % steps * _STEP
    return y[part // steps, first : first + _STEP]


@kernel
def _swiglu(x, y):
    rows, n = y.shape
    for part in prange(_parts(rows, n)):
        (a, b), out = _part(x, n, part), _part_of_result(y, part)
        for i in range(out.size):
            out[i] = a[i] * sigmoid32(a[i]) * b[i]


@kernel
def _swiglu_backward(x, dy, dx):
    rows, n = dy.shape
    for part in prange(_parts(rows, n)):
        (a, b), (da, db), dout = _part(x, n, part), _part(dx, n, part), _part_of_result(dy, part)
        for i in range(dout.size):
            s = sigmoid32(a[i])
            da[i] = dout[i] * b[i] * silu_derivative(a[i], s)
            db[i] = dout[i] * a[i] * s


@kernel
def _geglu(x, exact, y):
    rows, n = y.shape
    for part in prange(_parts(rows, n)):
        (a, b), out = _part(x, n, part), _part_of_result(y, part)
        if exact:
            for i in range(out.size):
                out[i] = a[i] * cdf(a[i]) * b[i]
        else:
            for i in range(out.size):
                out[i] = a[i] * cdf_tanh(a[i]) * b[i]


@kernel
def _geglu_backward(x, dy, exact, dx):
    rows, n = dy.shape
    for part in prange(_parts(rows, n)):
        (a, b), (da, db), dout = _part(x, n, part), _part(dx, n, part), _part_of_result(dy, part)
        if exact:
            for i in range(dout.size):
                p = cdf(a[i])
                da[i] = dout[i] * b[i] * slope(a[i], p)
                db[i] = dout[i] * a[i] * p
        else:
            for i in range(dout.size):
                p = cdf_tanh(a[i])
                da[i] = dout[i] * b[i] * slope_tanh(a[i], p)
                db[i] = dout[i] * a[i] * p


@swiglu.fused("cpu")
def _(x: np.ndarray, dim: int) -> tuple:
    return _gated(x, dim, _swiglu, _swiglu_backward)


@geglu.fused("cpu")
def _(x: np.ndarray, dim: int, approximate: str) -> tuple:
    return _gated(x, dim, _geglu, _geglu_backward, approximate == "none")


def _gated(x: np.ndarray, dim: int, forward: Callable, backward: Callable, *scalars: bool) -> tuple:
    require_single(x)
    return gated(x, dim, forward, backward, *scalars)
