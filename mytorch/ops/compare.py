"""Comparisons, logic and bits, element by element: nothing to differentiate."""

from __future__ import annotations

import builtins
import math

import numpy as np

from ..backends import dtypes
from ..core.op import op, require_tensor
from ..core.tensor import Tensor

__all__ = [
    "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor",
    "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "isclose", "allclose", "equal",
]


@op(promote="common", tensors=1, half="float16")
def eq(x, y):
    """x == y

    >>> mytorch.tensor([1, 2]).eq(2)
    tensor([False  True])
    >>> mytorch.tensor([1, 2]) == 2
    tensor([False  True])
    """
    return np.equal(x, y), None


@op(promote="common", tensors=1, half="float16")
def ne(x, y):
    """x != y

    >>> mytorch.tensor([1, 2]).ne(2)
    tensor([ True False])
    """
    return np.not_equal(x, y), None


@op(promote="common", tensors=1, half="float16")
def lt(x, y):
    """x < y

    >>> mytorch.tensor([1, 2]).lt(2)
    tensor([ True False])
    """
    return np.less(x, y), None


@op(promote="common", tensors=1, half="float16")
def le(x, y):
    """x <= y

    >>> mytorch.tensor([1, 2]).le(2)
    tensor([ True  True])
    """
    return np.less_equal(x, y), None


@op(promote="common", tensors=1, half="float16")
def gt(x, y):
    """x > y

    >>> mytorch.tensor([1, 2]).gt(1)
    tensor([False  True])
    """
    return np.greater(x, y), None


@op(promote="common", tensors=1, half="float16")
def ge(x, y):
    """x >= y

    >>> mytorch.tensor([1, 2]).ge(2)
    tensor([False  True])
    """
    return np.greater_equal(x, y), None


# Logic: what isn't 0 is true.


@op
def logical_not(x):
    """Returns whether x is zero.

    >>> mytorch.tensor([0, 2]).logical_not()
    tensor([ True False])
    """
    return np.logical_not(x), None


@op(promote="common", tensors=2)
def logical_and(x, y):
    """Returns whether neither of both is zero.

    >>> mytorch.tensor([0, 2]).logical_and(mytorch.tensor([1, 1]))
    tensor([False  True])
    """
    return np.logical_and(x, y), None


@op(promote="common", tensors=2)
def logical_or(x, y):
    """Returns whether one of both is not zero.

    >>> mytorch.tensor([0, 2]).logical_or(mytorch.tensor([0, 1]))
    tensor([False  True])
    """
    return np.logical_or(x, y), None


@op(promote="common", tensors=2)
def logical_xor(x, y):
    """Returns whether exactly one of both is not zero.

    >>> mytorch.tensor([0, 2]).logical_xor(mytorch.tensor([1, 1]))
    tensor([ True False])
    """
    return np.logical_xor(x, y), None


# Bits.


def _bits(function, name, *operands, refused="f"):
    dtype = next(x.dtype for x in operands if hasattr(x, "dtype"))
    if dtype.kind in refused:
        raise NotImplementedError(f"{name}(): not implemented for dtype {dtype}")
    return function(*operands), None


@op
def bitwise_not(x):
    """~x: the bits turned; for bool, not.

    >>> mytorch.tensor([6]).bitwise_not()
    tensor([-7])
    """
    return _bits(np.invert, "bitwise_not", x)


@op(promote="common")
def bitwise_and(x, y):
    """x & y

    >>> mytorch.tensor([6]).bitwise_and(3)
    tensor([2])
    """
    return _bits(np.bitwise_and, "bitwise_and", x, y)


@op(promote="common")
def bitwise_or(x, y):
    """x | y

    >>> mytorch.tensor([6]).bitwise_or(3)
    tensor([7])
    """
    return _bits(np.bitwise_or, "bitwise_or", x, y)


@op(promote="common")
def bitwise_xor(x, y):
    """x ^ y

    >>> mytorch.tensor([6]).bitwise_xor(3)
    tensor([5])
    """
    return _bits(np.bitwise_xor, "bitwise_xor", x, y)


@op(promote="common")
def bitwise_left_shift(x, y):
    """x << y

    >>> mytorch.tensor([3]).bitwise_left_shift(2)
    tensor([12])
    """
    return _bits(np.left_shift, "bitwise_left_shift", x, y, refused="fb")


@op(promote="common")
def bitwise_right_shift(x, y):
    """x >> y, which keeps the sign.

    >>> mytorch.tensor([12]).bitwise_right_shift(2)
    tensor([3])
    """
    return _bits(np.right_shift, "bitwise_right_shift", x, y, refused="fb")


def invert(x: Tensor) -> Tensor:
    """~x, for integers and bools."""
    if x.dtype.kind not in "iub":
        raise TypeError(f"~ is for integer and bool tensors, got {x.dtype}")
    return bitwise_not(x)


# Tests of numbers.


@op(half="float16")
def isnan(x):
    """Returns whether x is NaN.

    >>> mytorch.tensor([1.0, float("nan")]).isnan()
    tensor([False  True])
    """
    return np.isnan(x), None


@op(half="float16")
def isinf(x):
    """Returns whether x is infinite, of either sign.

    >>> mytorch.tensor([1.0, float("-inf")]).isinf()
    tensor([False  True])
    """
    return np.isinf(x), None


@op(half="float16")
def isfinite(x):
    """Returns whether x is neither infinite nor NaN.

    >>> mytorch.tensor([1.0, float("inf")]).isfinite()
    tensor([ True False])
    """
    return np.isfinite(x), None


@op(half="float16")
def isposinf(x):
    """Returns whether x is inf.

    >>> mytorch.tensor([float("inf"), float("-inf")]).isposinf()
    tensor([ True False])
    """
    return np.equal(x, math.inf), None


@op(half="float16")
def isneginf(x):
    """Returns whether x is -inf.

    >>> mytorch.tensor([float("inf"), float("-inf")]).isneginf()
    tensor([False  True])
    """
    return np.equal(x, -math.inf), None


@op
def isreal(x):
    """Tests whether the imaginary part is 0; True in a tensor that isn't complex.

    >>> mytorch.tensor([1.0, 2.0]).isreal()
    tensor([ True  True])
    """
    return np.equal(x.imag, 0) if x.dtype.kind == "c" else np.ones_like(x, dtype=np.bool), None


# Nearly equal, and equal in all elements.


@op
def _isclose(x, y, *, rtol, atol, equal_nan):
    close = np.equal(x, y)
    if equal_nan:
        close = close | (np.isnan(x) & np.isnan(y))
    if rtol or atol:
        if x.dtype.kind in "biu":
            x, y = (v.astype(dtypes.get_default_dtype()) for v in (x, y))
        near = np.less_equal(np.abs(x - y), atol + np.abs(rtol * y))
        close = close | (near & np.isfinite(x) & np.isfinite(y))
    return close, None


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False
) -> Tensor:
    """|input - other| <= atol + rtol |other|, or both the same infinity.

    Args:
        equal_nan: whether NaN is close to NaN.

    Raises:
        RuntimeError: the dtypes differ; rtol or atol is negative.

    >>> mytorch.tensor([1.0, 2.0]).isclose(mytorch.tensor([1.0, 2.1]))
    tensor([ True False])
    """
    for x in (input, other):
        require_tensor(x, "isclose")
    if input.dtype != other.dtype:
        raise RuntimeError(f"isclose(): the dtypes differ: {input.dtype} and {other.dtype}")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if bound < 0:
            raise RuntimeError(f"isclose(): {name} must be greater than or equal to zero, but got {bound}")
    return _isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False
) -> builtins.bool:
    """Tests whether all elements of `input` are close to those of `other`, see `isclose`.

    >>> mytorch.ones(2).allclose(mytorch.ones(2) + 1e-7)
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).data.all())


def equal(input: Tensor, other: Tensor) -> builtins.bool:
    """Tests whether both have the same shape and equal elements.

    >>> mytorch.equal(mytorch.ones(2), mytorch.ones(2))
    True
    """
    for x in (input, other):
        require_tensor(x, "equal")
    return tuple(input.shape) == tuple(other.shape) and bool(eq(input, other).data.all())
