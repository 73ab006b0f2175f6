"""Rounding, and replacing NaN and inf."""

from __future__ import annotations

import math

import numpy as np

from ...backends.dtypes import finfo, is_floating_point
from ...core.op import op
from ...core.tensor import Tensor
from ..reduce import cast
from .operands import refuse, zero_gradient

__all__ = ["floor", "ceil", "round", "trunc", "frac", "nan_to_num"]


def _round_with(function, x, name):
    """`function(x)`; integers are round already, and CuPy would make floats of them."""
    refuse("b", name, x)
    return function(x) if is_floating_point(x.dtype) else x.copy(), zero_gradient


@op(half="float16")
def floor(x):
    """The largest integer that is not above x.

    >>> mytorch.tensor([1.5, -1.5]).floor()
    tensor([ 1.00000 -2.00000])
    """
    return _round_with(np.floor, x, "floor")


@op(half="float16")
def ceil(x):
    """The smallest integer that is not below x.

    >>> mytorch.tensor([1.5, -1.5]).ceil()
    tensor([ 2.00000 -1.00000])
    """
    return _round_with(np.ceil, x, "ceil")


@op(half="float16")
def trunc(x):
    """The integer next to x on the side of 0.

    >>> mytorch.tensor([1.5, -1.5]).trunc()
    tensor([ 1.00000 -1.00000])
    """
    return _round_with(np.trunc, x, "trunc")


@op
def round(x, *, decimals=0):
    """The nearest multiple of 10 ** -decimals; ties go to the even one.

    >>> mytorch.tensor([0.5, 1.5, 2.6]).round()
    tensor([0.00000 2.00000 3.00000])
    """
    if decimals and not is_floating_point(x.dtype):
        refuse("iu", "round with decimals", x)
    return _round_with(lambda x: np.round(x, decimals), x, "round")


@op(half="float16")
def frac(x):
    """x - trunc(x)

    >>> mytorch.tensor([1.5, -1.5]).frac()
    tensor([ 0.50000 -0.50000])
    """
    refuse("biu", "frac", x)
    return x - np.trunc(x), lambda g: g


@op
def _nan_to_num(x, *, nan, posinf, neginf):
    if not is_floating_point(x.dtype):
        return x.copy(), None
    y = np.where(np.isnan(x), 0 if nan is None else nan, x)
    y = np.where(np.equal(x, math.inf), posinf, np.where(np.equal(x, -math.inf), neginf, y))
    return cast(y, x.dtype), lambda g: g * np.isfinite(x)


def nan_to_num(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """`input` with `nan` (default 0) for NaN, and `posinf` and `neginf` (default the largest finite numbers)
    for the infinite ones; where something was replaced the gradient is 0.

    >>> mytorch.tensor([1.0, float("nan")]).nan_to_num()
    tensor([1.00000 0.00000])
    """
    dtype = getattr(input, "dtype", None)
    if dtype is not None and is_floating_point(dtype):
        limits = finfo(dtype)
        posinf = float(limits.max) if posinf is None else posinf
        neginf = float(limits.min) if neginf is None else neginf
    return _nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)
