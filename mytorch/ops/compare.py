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
]  # fmt: skip


@op(promote="common", tensors=1, half="float16")
def eq(x, y):
    """x == y"""
    return np.equal(x, y), None


@op(promote="common", tensors=1, half="float16")
def ne(x, y):
    """x != y"""
    return np.not_equal(x, y), None


@op(promote="common", tensors=1, half="float16")
def lt(x, y):
    """x < y"""
    return np.less(x, y), None


@op(promote="common", tensors=1, half="float16")
def le(x, y):
    """x <= y"""
    return np.less_equal(x, y), None


@op(promote="common", tensors=1, half="float16")
def gt(x, y):
    """x > y"""
    return np.greater(x, y), None


@op(promote="common", tensors=1, half="float16")
def ge(x, y):
    """x >= y"""
    return np.greater_equal(x, y), None


# Logic: what isn't 0 is true.


@op
def logical_not(x):
    return np.logical_not(x), None


@op(promote="common", tensors=2)
def logical_and(x, y):
    return np.logical_and(x, y), None


@op(promote="common", tensors=2)
def logical_or(x, y):
    return np.logical_or(x, y), None


@op(promote="common", tensors=2)
def logical_xor(x, y):
    return np.logical_xor(x, y), None


# Bits.


def _bits(function, name, *operands, refused="f"):
    dtype = next(x.dtype for x in operands if hasattr(x, "dtype"))
    if dtype.kind in refused:
        raise NotImplementedError(f"{name}(): not implemented for dtype {dtype}")
    return function(*operands), None


@op
def bitwise_not(x):
    """~x: the bits turned; for bool, not."""
    return _bits(np.invert, "bitwise_not", x)


@op(promote="common")
def bitwise_and(x, y):
    """x & y"""
    return _bits(np.bitwise_and, "bitwise_and", x, y)


@op(promote="common")
def bitwise_or(x, y):
    """x | y"""
    return _bits(np.bitwise_or, "bitwise_or", x, y)


@op(promote="common")
def bitwise_xor(x, y):
    """x ^ y"""
    return _bits(np.bitwise_xor, "bitwise_xor", x, y)


@op(promote="common")
def bitwise_left_shift(x, y):
    """x << y"""
    return _bits(np.left_shift, "bitwise_left_shift", x, y, refused="fb")


@op(promote="common")
def bitwise_right_shift(x, y):
    """x >> y, which keeps the sign."""
    return _bits(np.right_shift, "bitwise_right_shift", x, y, refused="fb")


def invert(x: Tensor) -> Tensor:
    """~x, for integers and bools."""
    if x.dtype.kind not in "iub":
        raise TypeError(f"~ is for integer and bool tensors, got {x.dtype}")
    return bitwise_not(x)


# Tests of numbers.


@op(half="float16")
def isnan(x):
    return np.isnan(x), None


@op(half="float16")
def isinf(x):
    return np.isinf(x), None


@op(half="float16")
def isfinite(x):
    return np.isfinite(x), None


@op(half="float16")
def isposinf(x):
    return np.equal(x, math.inf), None


@op(half="float16")
def isneginf(x):
    return np.equal(x, -math.inf), None


@op
def isreal(x):
    """Tests whether the imaginary part is 0; True in a tensor that isn't complex."""
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
    """Tests whether all elements of `input` are close to those of `other`, see `isclose`."""
    return bool(isclose(input, other, rtol, atol, equal_nan).data.all())


def equal(input: Tensor, other: Tensor) -> builtins.bool:
    """Tests whether both have the same shape and equal elements."""
    for x in (input, other):
        require_tensor(x, "equal")
    return tuple(input.shape) == tuple(other.shape) and bool(eq(input, other).data.all())
