"""Element-wise ops. Each is its formula and, for each input, the derivative times `g`."""

from __future__ import annotations

import numpy as np

from ..device import is_raw
from .op import op

__all__ = [
    "add", "sub", "mul", "floor_divide", "div", "remainder", "pow", "maximum", "minimum", "neg",
    "positive", "abs", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "tan",
    "tanh", "sigmoid", "relu", "sign", "floor", "ceil", "round", "clamp", "fill", "zero",
]  # fmt: skip


def _zero(g):
    """The derivative of a function that is flat almost everywhere."""
    return np.zeros_like(g)


# Arithmetic.


@op(promote="common")
def add(x, y, *, alpha=1):
    """x + alpha * y"""
    if alpha == 1:
        return x + y, (lambda g: g, lambda g: g)
    return x + alpha * y, (lambda g: g, lambda g: alpha * g)


@op(promote="common")
def _sub(x, y, alpha=1):
    if alpha == 1:
        return x - y, (lambda g: g, lambda g: -g)
    return x - alpha * y, (lambda g: g, lambda g: -alpha * g)


def sub(x, y, *, alpha=1):
    """x - alpha * y"""
    if any(isinstance(v, bool) or getattr(v, "dtype", None) == np.bool for v in (x, y)):
        raise RuntimeError(
            "sub(): subtraction with a bool tensor is not defined; use logical_not or bitwise_xor"
        )
    return _sub(x, y) if alpha == 1 else _sub(x, y, alpha=alpha)


@op(promote="common")
def mul(x, y):
    """x * y"""
    return x * y, (lambda g: g * y, lambda g: g * x)


@op(promote="float")
def _true_divide(x, y):
    return x / y, (lambda g: g / y, lambda g: -g * (x / y) / y)


@op(promote="common")
def _trunc_divide(x, y):
    _check_divisor(y, "div")
    if x.dtype.kind == "f":
        return np.trunc(x / y), (_zero, _zero)
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)), None


@op(promote="common")
def _floor_divide(x, y):
    _check_divisor(y, "div")
    return x // y, (_zero, _zero)


@op(promote="common")
def floor_divide(x, y):
    """floor(x / y); it has no derivative."""
    _check_divisor(y, "floor_divide")
    return x // y, None


def div(x, y, *, rounding_mode=None):
    """x / y; with rounding_mode "floor" or "trunc" the quotient is rounded and integers stay integers."""
    rounded = {None: _true_divide, "floor": _floor_divide, "trunc": _trunc_divide}
    if rounding_mode not in rounded:
        raise RuntimeError(f"div(): rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}")
    return rounded[rounding_mode](x, y)


@op(promote="common")
def remainder(x, y):
    """x - y * floor(x / y): it has the sign of y."""
    _check_divisor(y, "remainder")
    return np.remainder(x, y), (lambda g: g, lambda g: -g * np.floor(x / y))


@op(promote="common")
def pow(x, y):
    """x ** y"""
    if x.dtype.kind in "iu" and not _on_gpu(y) and np.any(np.less(y, 0)):
        raise RuntimeError("pow(): integers to negative integer powers are not allowed")
    z = x**y

    def grad_x(g):  # y = 0: the derivative is 0, also where x ** (y - 1) is infinite
        return np.where(np.equal(y, 0), 0, g * (y * x ** (y - 1)))

    def grad_y(g):  # x = 0: 0 for y >= 0, although log(x) is infinite
        return np.where(np.equal(x, 0) & np.greater_equal(y, 0), 0, g * (z * np.log(x)))

    return z, (grad_x, grad_y)


@op(promote="common")
def maximum(x, y):
    """The larger of the two; NaN wins. Where they are equal, each gets half of the gradient."""

    def pull(g, mine, other):
        return np.where(np.equal(mine, other), g / 2, np.where(np.less(mine, other), 0, g))

    return np.maximum(x, y), (lambda g: pull(g, x, y), lambda g: pull(g, y, x))


@op(promote="common")
def minimum(x, y):
    """The smaller of the two; NaN wins. Where they are equal, each gets half of the gradient."""

    def pull(g, mine, other):
        return np.where(np.equal(mine, other), g / 2, np.where(np.greater(mine, other), 0, g))

    return np.minimum(x, y), (lambda g: pull(g, x, y), lambda g: pull(g, y, x))


def _on_gpu(x):
    """Is it out of sight? Looking at values on a GPU would mean waiting for them."""
    return is_raw(x) and not isinstance(x, np.ndarray)


def _check_divisor(y, name):
    """Dividing integers by zero is an error, except on a GPU."""
    if not is_raw(y) or (not _on_gpu(y) and y.dtype.kind in "iu"):
        kind = getattr(y, "dtype", np.dtype(type(y))).kind
        if kind in "iub" and not np.all(y):
            raise RuntimeError(f"{name}(): ZeroDivisionError: an integer was divided by zero")


def _no_bool(x, name):
    if x.dtype == bool:
        raise RuntimeError(f"{name}(): not defined for a bool tensor; logical_not turns one around")


# One input.


@op
def neg(x):
    """-x"""
    _no_bool(x, "neg")
    return -x, lambda g: -g


@op
def positive(x):
    """x"""
    return +x, lambda g: g


@op
def abs(x):
    """|x|"""
    _no_bool(x, "abs")
    return np.abs(x), lambda g: g * _sign(x)


@op(promote="float")
def exp(x):
    """e ** x"""
    y = np.exp(x)
    return y, lambda g: g * y


@op(promote="float")
def log(x):
    """The natural logarithm."""
    return np.log(x), lambda g: g / x


@op(promote="float")
def sqrt(x):
    """x ** (1/2)"""
    y = np.sqrt(x)
    return y, lambda g: g / (2 * y)


@op(promote="float")
def rsqrt(x):
    """x ** (-1/2)"""
    y = 1 / np.sqrt(x)
    return y, lambda g: g * (-0.5 * y * y * y)


@op
def square(x):
    """x ** 2"""
    x = x.astype(np.int64) if x.dtype == bool else x
    return np.square(x), lambda g: g * (2 * x)


@op(promote="float")
def reciprocal(x):
    """1 / x"""
    y = 1 / x
    return y, lambda g: -g * y * y


@op(promote="float")
def sin(x):
    return np.sin(x), lambda g: g * np.cos(x)


@op(promote="float")
def cos(x):
    return np.cos(x), lambda g: -g * np.sin(x)


@op(promote="float")
def tan(x):
    y = np.tan(x)
    return y, lambda g: g * (1 + y * y)


@op(promote="float")
def tanh(x):
    y = np.tanh(x)
    return y, lambda g: g * (1 - y * y)


@op(promote="float")
def sigmoid(x):
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which can't overflow"""
    y = 0.5 * np.tanh(0.5 * x) + 0.5
    return y, lambda g: g * (y * (1 - y))


@op
def relu(x):
    """max(x, 0)"""
    _no_bool(x, "relu")
    y = np.maximum(x, 0)
    return y, lambda g: np.where(np.less_equal(y, 0), 0, g)


def _sign(x):
    """-1, 0 or 1, and 0 for NaN."""
    return x if x.dtype == bool else np.greater(x, 0) - np.less(x, 0).astype(x.dtype)


@op
def sign(x):
    """-1, 0 or 1"""
    return _sign(x), _zero


@op
def floor(x):
    """The largest integer that is not above x."""
    _no_bool(x, "floor")
    return np.floor(x), _zero


@op
def ceil(x):
    """The smallest integer that is not below x."""
    _no_bool(x, "ceil")
    return np.ceil(x), _zero


@op
def round(x, *, decimals=0):
    """The nearest multiple of 10 ** -decimals; ties go to the even one."""
    _no_bool(x, "round")
    return np.round(x, decimals), _zero


@op(promote="common")
def _clamp(x, low, high):
    y = x if low is None else np.maximum(x, low)
    y = y if high is None else np.minimum(y, high)

    def inside(g):
        above = True if low is None else np.greater_equal(x, low)
        below = True if high is None else np.less_equal(x, high)
        return g * (above & below)

    def at_low(g):
        under = np.less(x, low)
        return g * (under if high is None else under & np.less(low, high))

    def at_high(g):
        over = np.greater(x, high)
        return g * (over if low is None else over | np.greater_equal(low, high))

    return y, (inside, at_low, at_high)


def clamp(x, min=None, max=None):
    """x where min <= x <= max, else the bound that it passes; where min > max, max."""
    if min is None and max is None:
        raise ValueError("clamp(): at least one of min and max must not be None")
    return _clamp(x, min, max)


# Writing: the functional form of what `ops.inplace` does in place.


@op
def fill(x, value):
    """Every element replaced by `value`."""
    return np.full_like(x, value), (_zero, lambda g: g)


@op
def zero(x):
    """Every element replaced by 0."""
    return np.zeros_like(x), _zero
