"""Maximum and minimum of two, and clamping."""

from __future__ import annotations

import numpy as np

from ...core.op import NUMBERS, common_dtype, op, require_tensor
from ...core.tensor import Tensor
from ..scalars import Number, as_number
from .operands import refuse

__all__ = ["maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "relu"]


def _split_ties(g, mine, other, lost):
    """Returns the gradient of one of two: half of it where they are equal, 0 where it `lost`."""
    return np.where(np.equal(mine, other), g / 2, np.where(lost(mine, other), 0, g))


@op(promote="common", tensors=2, half="float16")
def maximum(x, y):
    """The larger of the two; NaN wins. Where they are equal, each gets half of the gradient.

    >>> mytorch.tensor([1, 4]).maximum(mytorch.tensor([2, 3]))
    tensor([2 4])
    """
    z = np.maximum(x, y)
    return z, (lambda g: _split_ties(g, x, y, np.less), lambda g: _split_ties(g, y, x, np.less))


@op(promote="common", tensors=2, half="float16")
def minimum(x, y):
    """The smaller of the two; NaN wins. Where they are equal, each gets half of the gradient.

    >>> mytorch.tensor([1, 4]).minimum(mytorch.tensor([2, 3]))
    tensor([1 3])
    """
    z = np.minimum(x, y)
    return z, (lambda g: _split_ties(g, x, y, np.greater), lambda g: _split_ties(g, y, x, np.greater))


@op(promote="common", tensors=2, half="float16")
def fmax(x, y):
    """The larger of the two; NaN loses. Where they are equal, x gets the gradient.

    >>> mytorch.tensor([1.0, float("nan")]).fmax(mytorch.tensor([2.0, 3.0]))
    tensor([2.00000 3.00000])
    """

    def first():
        return np.greater_equal(x, y) | np.isnan(y)

    return np.fmax(x, y), (lambda g: np.where(first(), g, 0), lambda g: np.where(first(), 0, g))


@op(promote="common", tensors=2, half="float16")
def fmin(x, y):
    """The smaller of the two; NaN loses. Where they are equal, x gets the gradient.

    >>> mytorch.tensor([1.0, float("nan")]).fmin(mytorch.tensor([2.0, 3.0]))
    tensor([1.00000 3.00000])
    """

    def first():
        return np.less_equal(x, y) | np.isnan(y)

    return np.fmin(x, y), (lambda g: np.where(first(), g, 0), lambda g: np.where(first(), 0, g))


@op(promote="common", half="float16")
def _clamp(x, low, high):
    y = x if low is None else np.maximum(x, low)
    y = y if high is None else np.minimum(y, high)

    def inside(g):
        above = True if low is None else np.greater_equal(x, low)
        below = True if high is None else np.less_equal(x, high)
        return np.where(above & below, g, 0)

    def at_low(g):
        under = np.less(x, low)
        return np.where(under if high is None else under & np.less(low, high), g, 0)

    def at_high(g):
        over = np.greater(x, high)
        return np.where(over if low is None else over | np.less(high, low), g, 0)

    return y, (inside, at_low, at_high)


def clamp(input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """`input` limited to [min, max]; where min > max, max.

    The gradient goes to where the value comes from; at a bound, to the input.

    Args:
        min, max: numbers or tensors, broadcast and promoted with the input; None for no bound.

    Raises:
        RuntimeError: no bound at all; one that an integer dtype can't hold.

    >>> mytorch.tensor([-2, 0, 2]).clamp(-1, 1)
    tensor([-1  0  1])
    """
    if min is None and max is None:
        raise RuntimeError("clamp(): at least one of min and max must not be None")
    return _clamp_by("clamp", input, min, max)


def clamp_min(input: Tensor, min: Tensor | Number) -> Tensor:
    """max(input, min); see `clamp`.

    >>> mytorch.tensor([-2, 0, 2]).clamp_min(0)
    tensor([0 0 2])
    """
    if min is None:
        raise TypeError("clamp_min(): min must be a number or a tensor, got None")
    return _clamp_by("clamp_min", input, min, None)


def clamp_max(input: Tensor, max: Tensor | Number) -> Tensor:
    """min(input, max); see `clamp`.

    >>> mytorch.tensor([-2, 0, 2]).clamp_max(0)
    tensor([-2  0  0])
    """
    if max is None:
        raise TypeError("clamp_max(): max must be a number or a tensor, got None")
    return _clamp_by("clamp_max", input, None, max)


def _clamp_by(name, x, low, high):
    require_tensor(x, name)
    for bound in (low, high):
        if isinstance(bound, NUMBERS):
            dtype = common_dtype([x, low, high])
            if dtype.kind == "b":
                raise NotImplementedError(f"{name}(): not implemented for dtype bool and numbers")
            if dtype.kind in "iu":
                as_number(bound, dtype, name)
    return _clamp(x, low, high)


@op(half="float16")
def relu(x):
    """max(x, 0); its gradient at 0 is 0.

    >>> mytorch.tensor([-1.0, 2.0]).relu()
    tensor([0.00000 2.00000])
    """
    refuse("b", "relu", x)
    y = np.maximum(x, 0)
    return y, lambda g: np.where(np.less_equal(y, 0), 0, g)
