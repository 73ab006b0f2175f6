"""Sums, products, quotients and powers: the formula and, for each input, the derivative times `g`."""

from __future__ import annotations

import numpy as np

from ...backends import dtypes
from ...backends.device import RawArray
from ...core.op import NUMBERS, common_dtype, op, require_tensor
from ...core.tensor import Tensor
from ..cast import astype
from ..scalars import Number, as_number
from .operands import check_divisor, dtype_of, factor, log_of, refuse, zero_gradient

__all__ = [
    "add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "fmod", "square", "reciprocal",
    "pow", "float_power", "lerp", "addcmul", "addcdiv",
]


# Sums and products.


def same(g: RawArray) -> RawArray:
    """Returns the gradient of a summand: that of the sum."""
    return g


@op(promote="common", numbers=True, half="sum")
def add(x, y, *, alpha=1):
    """x + alpha * y

    Raises:
        RuntimeError: alpha doesn't fit the result's dtype, as a fraction doesn't fit integers.

    >>> mytorch.add(mytorch.tensor([1, 2]), 10)
    tensor([11 12])
    >>> mytorch.tensor([1, 2]).add(mytorch.tensor([1, 1]), alpha=3)
    tensor([4 5])
    """
    if type(alpha) is int and alpha == 1:
        return x + y, (same, same)
    alpha = factor(alpha, dtype_of(x, y), "add")
    return x + alpha * y, (same, lambda g: alpha * g)


@op(promote="common", numbers=True, half="float16")
def _sub(x, y, *, alpha=1):
    if type(alpha) is int and alpha == 1:
        return x - y, (same, np.negative)
    alpha = factor(alpha, dtype_of(x, y), "sub")
    return x - alpha * y, (same, lambda g: -alpha * g)


def sub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other

    Raises:
        RuntimeError: an operand is bool; alpha doesn't fit the result's dtype.

    >>> mytorch.tensor([1, 2]).sub(mytorch.tensor([1, 1]), alpha=2)
    tensor([-1  0])
    """
    for x in (input, other):
        if isinstance(x, bool) or getattr(x, "dtype", None) == np.bool:
            raise RuntimeError(
                "sub(): subtraction with a bool tensor is not defined; use logical_not or bitwise_xor"
            )
    return _sub(input, other, alpha=alpha)


def rsub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input

    >>> mytorch.rsub(mytorch.tensor([1, 2]), 10)
    tensor([9 8])
    """
    require_tensor(input, "rsub")
    return sub(other, input, alpha=alpha)


@op(promote="common", numbers=True, half="float16")
def mul(x, y):
    """x * y

    >>> mytorch.tensor([[1], [2]]).mul(mytorch.tensor([10, 20]))
    tensor([[10 20]
            [20 40]])
    """
    return x * y, (lambda g: g * y, lambda g: g * x)


@op(half="float16")
def square(x):
    """x ** 2

    >>> mytorch.tensor([2, 3]).square()
    tensor([4 9])
    """
    x = x.astype(np.int64) if x.dtype == np.bool else x
    return np.square(x), lambda g: g * (2 * x)


@op(promote="common", tensors=3)
def addcmul(x, tensor1, tensor2, *, value=1):
    """x + value * tensor1 * tensor2

    >>> mytorch.zeros(2).addcmul(mytorch.tensor([1.0, 2.0]), mytorch.tensor([3.0, 4.0]), value=2)
    tensor([ 6.00000 16.00000])
    """
    refuse("b", "addcmul", x)
    value = factor(value, x.dtype, "addcmul", "value")
    scaled = tensor1 if value == 1 else value * tensor1
    return x + scaled * tensor2, (same, lambda g: g * (value * tensor2), lambda g: g * scaled)


# Quotients and remainders.


@op(promote="float", numbers=True, half="float16")
def _true_divide(x, y):
    return x / y, (lambda g: g / y, lambda g: -g * (x / y) / y)


@op(promote="common", numbers=True, half="float16")
def _trunc_divide(x, y):
    check_divisor(x, y, "div")
    refuse("b", "div", x, y)
    if dtypes.is_floating_point(dtype_of(x, y)):
        return np.trunc(x / y), (zero_gradient, zero_gradient)
    return (x - np.fmod(x, y)) // y, None


@op(promote="common", numbers=True, half="float16")
def _floor_divide(x, y):
    check_divisor(x, y, "div")
    refuse("b", "div", x, y)
    return x // y, (zero_gradient, zero_gradient)


def div(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; with rounding_mode "floor" or "trunc" the quotient is rounded, of integers an integer.

    Raises:
        RuntimeError: another rounding_mode; integers are divided by zero, with a rounding_mode.

    >>> mytorch.tensor([7, -7]).div(2)
    tensor([ 3.50000 -3.50000])
    >>> mytorch.tensor([7, -7]).div(2, rounding_mode="trunc")
    tensor([ 3 -3])
    """
    quotients = {None: _true_divide, "floor": _floor_divide, "trunc": _trunc_divide}
    if rounding_mode not in quotients:
        raise RuntimeError(f"div(): rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}")
    return quotients[rounding_mode](input, other)


@op(promote="common", numbers=True, half="float16")
def floor_divide(x, y):
    """floor(x / y); it has no derivative.

    >>> mytorch.tensor([7, -7]).floor_divide(2)
    tensor([ 3 -4])
    """
    check_divisor(x, y, "floor_divide")
    refuse("b", "floor_divide", x, y)
    return x // y, None


@op(promote="common", half="float16")
def remainder(x, y):
    """x - y * floor(x / y): it has the sign of y.

    >>> mytorch.tensor([7, -7]).remainder(4)
    tensor([3 1])
    """
    check_divisor(x, y, "remainder")
    refuse("b", "remainder", x, y)
    return np.remainder(x, y), (lambda g: g, lambda g: -g * np.floor_divide(x, y))


@op(promote="common", tensors=1, half="float16")
def fmod(x, y):
    """x - y * trunc(x / y): it has the sign of x.

    >>> mytorch.tensor([7, -7]).fmod(4)
    tensor([ 3 -3])
    """
    check_divisor(x, y, "fmod")
    refuse("b", "fmod", x, y)
    return np.fmod(x, y), (lambda g: g, lambda g: -g * np.trunc(x / y))


@op(promote="float", half="float16")
def reciprocal(x):
    """1 / x

    >>> mytorch.tensor([2.0, 4.0]).reciprocal()
    tensor([0.50000 0.25000])
    """
    y = 1 / x
    return y, lambda g: -g * y * y


@op(promote="common")
def _addcdiv(x, tensor1, tensor2, *, value):
    value = factor(value, x.dtype, "addcdiv", "value")
    quotient = tensor1 / tensor2 if value == 1 else value * tensor1 / tensor2
    return x + quotient, (same, lambda g: g * (value / tensor2), lambda g: -g * (quotient / tensor2))


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2

    Raises:
        RuntimeError: tensor1 and tensor2 are both integers.

    >>> mytorch.zeros(2).addcdiv(mytorch.tensor([1.0, 2.0]), mytorch.tensor([2.0, 4.0]))
    tensor([0.50000 0.50000])
    """
    for x in (input, tensor1, tensor2):
        require_tensor(x, "addcdiv")
    if tensor1.dtype.kind in "biu" and tensor2.dtype.kind in "biu":
        raise RuntimeError("addcdiv(): integers are not divided; use input + value * tensor1 / tensor2")
    return _addcdiv(input, tensor1, tensor2, value=value)


# Powers.


@op(promote="common")
def _pow(x, y):
    dtype = dtype_of(x, y)
    if dtype.kind == "b":
        if not isinstance(y, NUMBERS):
            refuse("b", "pow", y)
        return np.logical_or(x, not y), None
    if dtype.kind == "i" and not isinstance(y, NUMBERS):
        return _integer_power(x, y), None
    z = x**y

    def grad_x(g):  # y = 0: the derivative is 0, also where x ** (y - 1) is infinite
        if isinstance(y, NUMBERS) and y:
            return g * (y * x ** (y - 1))
        return np.where(np.equal(y, 0), 0, g * (y * x ** (y - 1)))

    def grad_y(g):  # x = 0: 0 for y >= 0, although log(x) is infinite
        return np.where(np.equal(x, 0) & np.greater_equal(y, 0), 0, g * (z * log_of(x)))

    return z, (grad_x, grad_y)


def _integer_power(x, y):
    """x ** y, where a negative power is the inverse if that is an integer, else 0."""
    inverse = np.where(np.equal(x, 1), 1, np.where(np.equal(x, -1), 1 - 2 * (y & 1), 0))
    return np.where(np.less(y, 0), inverse, x ** np.maximum(y, 0)).astype(y.dtype)


def pow(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """input ** exponent

    Raises:
        RuntimeError: integers to a negative number, or to one that their dtype can't hold.

    >>> mytorch.tensor([2.0, 3.0]).pow(2)
    tensor([4.00000 9.00000])
    """
    if isinstance(exponent, NUMBERS) and hasattr(input, "dtype"):
        dtype = common_dtype([input, exponent])
        if dtype.kind in "iu":
            if exponent < 0:
                raise RuntimeError("pow(): integers to negative integer powers are not allowed")
            as_number(exponent, dtype, "pow")
    return _pow(input, exponent)


def float_power(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """input ** exponent in float64

    >>> mytorch.tensor([2, 3]).float_power(2)
    tensor([4.00000 9.00000], dtype=float64)
    """
    return pow(_to_float64(input), _to_float64(exponent))


def _to_float64(x):
    return float(x) if isinstance(x, NUMBERS) else astype(x, dtypes.float64)


# Interpolation.


@op
def _lerp(x, y, weight):
    refuse("biu", "lerp", x)
    return _between(x, y, weight), (lambda g: g * (1 - weight), lambda g: g * weight, lambda g: g * (y - x))


def _between(x, y, weight):
    """Two formulas, so that the result is exact at both ends."""
    if isinstance(weight, NUMBERS):
        return x + weight * (y - x) if -0.5 < weight < 0.5 else y - (y - x) * (1 - weight)
    return np.where(np.abs(weight) < 0.5, x + weight * (y - x), y - (y - x) * (1 - weight))


def lerp(input: Tensor, end: Tensor, weight: Tensor | Number) -> Tensor:
    """input + weight * (end - input): `input` where the weight is 0, `end` where it is 1

    Raises:
        RuntimeError: `end` or `weight` has another dtype than `input`.
        NotImplementedError: the tensors aren't floating-point.

    >>> mytorch.zeros(2).lerp(mytorch.tensor([10.0, 20.0]), 0.5)
    tensor([ 5.00000 10.00000])
    """
    require_tensor(input, "lerp")
    require_tensor(end, "lerp")
    for name, x in (("end", end), ("weight", weight)):
        if getattr(x, "dtype", input.dtype) != input.dtype:
            raise RuntimeError(f"lerp(): expected dtype {input.dtype} for {name} but got dtype {x.dtype}")
    return _lerp(input, end, weight)
