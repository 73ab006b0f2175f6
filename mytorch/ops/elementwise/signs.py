"""Signs and absolute values."""

from __future__ import annotations

import numpy as np

from ...core.op import op
from .operands import refuse, zero_gradient

__all__ = ["neg", "positive", "abs", "sign", "signbit", "copysign"]


def _no_bool(x, name):
    if x.dtype == np.bool:
        raise RuntimeError(f"{name}(): not defined for a bool tensor; logical_not turns one around")


@op(half="float16")
def neg(x):
    """-x

    >>> mytorch.tensor([-1, 2]).neg()
    tensor([ 1 -2])
    """
    _no_bool(x, "neg")
    return -x, lambda g: -g


@op(half="float16")
def positive(x):
    """x

    >>> mytorch.tensor([-1, 2]).positive()
    tensor([-1  2])
    """
    _no_bool(x, "positive")
    return +x, lambda g: g


@op(half="float16")
def abs(x):
    """|x|; its gradient at 0 is 0.

    >>> mytorch.tensor([-1, 2]).abs()
    tensor([1 2])
    """
    refuse("b", "abs", x)
    return np.abs(x), lambda g: g * _sign(x)


def _sign(x):
    if x.dtype.kind == "c":
        size = np.abs(x)
        return x / np.where(np.equal(size, 0), 1, size)
    return x if x.dtype == np.bool else np.greater(x, 0).astype(x.dtype) - np.less(x, 0).astype(x.dtype)


@op(half="float16")
def sign(x):
    """-1, 0 or 1, and 0 for NaN.

    >>> mytorch.tensor([-3.0, 0.0, 2.0]).sign()
    tensor([-1.00000  0.00000  1.00000])
    """
    refuse("c", "sign", x)
    return +_sign(x) if x.dtype != np.bool else x.copy(), zero_gradient


@op(half="float16")
def signbit(x):
    """Tests whether x is negative, or -0.0.

    >>> mytorch.tensor([-1.0, 2.0]).signbit()
    tensor([ True False])
    """
    return np.less(x, 0) if x.dtype.kind != "f" else np.signbit(x), None


@op(promote="float", tensors=1, half="float16")
def copysign(x, y):
    """|x| with the sign of y, also that of -0.0; its gradient at x = 0 is 0.

    >>> mytorch.tensor([1.0, 2.0]).copysign(mytorch.tensor([-1.0, 1.0]))
    tensor([-1.00000  2.00000])
    """
    z = np.copysign(x, y)
    return z, (lambda g: g * np.where(np.equal(x, 0), 0, z / x), zero_gradient)
