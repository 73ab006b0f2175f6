"""Exponentials, logarithms and roots."""

from __future__ import annotations

import math

import numpy as np

from ...core.op import op
from ...core.tensor import Tensor
from .operands import log_of, refuse

__all__ = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "logaddexp2", "xlogy", "sqrt",
    "rsqrt", "sigmoid", "logit",
]


@op(promote="float", half="float16")
def exp(x):
    """e ** x

    >>> mytorch.tensor([0.0, 1.0]).exp()
    tensor([1.00000 2.71828])
    """
    y = np.exp(x)
    return y, lambda g: g * y


@op(promote="float", half="float16")
def exp2(x):
    """2 ** x

    >>> mytorch.tensor([0.0, 3.0]).exp2()
    tensor([1.00000 8.00000])
    """
    y = np.exp2(x)
    return y, lambda g: g * y * math.log(2)


@op(promote="float", half="float16")
def expm1(x):
    """e ** x - 1, with all digits where x is small.

    >>> mytorch.tensor([0.0, 1.0]).expm1()
    tensor([0.00000 1.71828])
    """
    y = np.expm1(x)
    return y, lambda g: g * (y + 1)


@op(promote="float", half="float16")
def log(x):
    """The natural logarithm.

    >>> mytorch.tensor([1.0, 10.0]).log()
    tensor([0.00000 2.30259])
    """
    return np.log(x), lambda g: g / x


@op(promote="float", half="float16")
def log2(x):
    """The logarithm to the base 2.

    >>> mytorch.tensor([1.0, 8.0]).log2()
    tensor([0.00000 3.00000])
    """
    return np.log2(x), lambda g: g / (x * math.log(2))


@op(promote="float", half="float16")
def log10(x):
    """The logarithm to the base 10.

    >>> mytorch.tensor([1.0, 100.0]).log10()
    tensor([0.00000 2.00000])
    """
    return np.log10(x), lambda g: g / (x * math.log(10))


@op(promote="float", half="float16")
def log1p(x):
    """log(1 + x), with all digits where x is small.

    >>> mytorch.tensor([0.0, 1.0]).log1p()
    tensor([0.00000 0.69315])
    """
    return np.log1p(x), lambda g: g / (x + 1)


@op(promote="common", tensors=2, half="float16")
def logaddexp(x, y):
    """log(exp(x) + exp(y)), without overflow.

    >>> mytorch.tensor([0.0]).logaddexp(mytorch.tensor([0.0]))
    tensor([0.69315])
    """
    refuse("biu", "logaddexp", x, y)
    return np.logaddexp(x, y), (lambda g: g / (1 + np.exp(y - x)), lambda g: g / (1 + np.exp(x - y)))


@op(promote="common", tensors=2, half="float16")
def logaddexp2(x, y):
    """log2(2 ** x + 2 ** y), without overflow.

    >>> mytorch.tensor([1.0]).logaddexp2(mytorch.tensor([1.0]))
    tensor([2.00000])
    """
    refuse("biu", "logaddexp2", x, y)
    return np.logaddexp2(x, y), (lambda g: g / (1 + np.exp2(y - x)), lambda g: g / (1 + np.exp2(x - y)))


@op(promote="float")
def xlogy(x, y):
    """x * log(y), and 0 where x is 0, whatever y is, except NaN.

    >>> mytorch.tensor([0.0, 2.0]).xlogy(mytorch.tensor([0.0, 3.0]))
    tensor([0.00000 2.19722])
    """
    nothing = np.equal(x, 0) & np.logical_not(np.isnan(y))

    def grad_x(g):
        return np.where(np.equal(x, 0) & np.less_equal(y, 0), 0, xlogy.dual(g, y))

    return np.where(nothing, 0, x * log_of(y)), (grad_x, lambda g: g * x / y)


@op(promote="float", half="float16")
def sqrt(x):
    """x ** (1/2)

    >>> mytorch.tensor([4.0, 9.0]).sqrt()
    tensor([2.00000 3.00000])
    """
    y = np.sqrt(x)
    return y, lambda g: g / (2 * y)


@op(promote="float")
def rsqrt(x):
    """x ** (-1/2)

    >>> mytorch.tensor([4.0, 16.0]).rsqrt()
    tensor([0.50000 0.25000])
    """
    y = 1 / np.sqrt(x)
    return y, lambda g: g * (-0.5 * y * y * y)


@op(promote="float")
def sigmoid(x):
    """1 / (1 + exp(-x))

    >>> mytorch.tensor([0.0, 2.0]).sigmoid()
    tensor([0.50000 0.88080])
    """
    # On a Tensor for a second derivative: where exp(-x) is infinite the formula's would be NaN.
    y = sigmoid(x) if isinstance(x, Tensor) else 1 / (1 + np.exp(-x))
    return y, lambda g: g * (y * (1 - y))


@op(promote="float")
def logit(x, eps=None):
    """log(x / (1 - x)), the inverse of `sigmoid`; with eps, x is first brought to between eps and 1 - eps.

    >>> mytorch.tensor([0.5, 0.9]).logit()
    tensor([0.00000 2.19722])
    """
    low, high = (0, 1) if eps is None else (eps, 1 - eps)
    inside = x if eps is None else np.where(np.less(x, low), low, np.where(np.greater(x, high), high, x))

    def vjp(g):
        outside = np.less(x, low) | np.greater(x, high)
        return np.where(outside, math.nan if eps is None else 0, g / (x * (1 - x)))

    return np.log(inside / (1 - inside)), (vjp, None)
