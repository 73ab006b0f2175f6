"""Comparisons and logic, element by element: nothing to differentiate."""

from __future__ import annotations

import numpy as np

from .op import op

__all__ = [
    "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor",
    "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "isnan", "isinf", "isfinite",
]  # fmt: skip


@op(promote="common")
def eq(x, y):
    return np.equal(x, y), None


@op(promote="common")
def ne(x, y):
    return np.not_equal(x, y), None


@op(promote="common")
def lt(x, y):
    return np.less(x, y), None


@op(promote="common")
def le(x, y):
    return np.less_equal(x, y), None


@op(promote="common")
def gt(x, y):
    return np.greater(x, y), None


@op(promote="common")
def ge(x, y):
    return np.greater_equal(x, y), None


@op
def logical_not(x):
    return np.logical_not(x), None


@op(promote="common")
def logical_and(x, y):
    return np.logical_and(x, y), None


@op(promote="common")
def logical_or(x, y):
    return np.logical_or(x, y), None


@op(promote="common")
def logical_xor(x, y):
    return np.logical_xor(x, y), None


@op
def bitwise_not(x):
    """~x: the bits turned; for bool, not."""
    return np.invert(x), None


@op(promote="common")
def bitwise_and(x, y):
    return np.bitwise_and(x, y), None


@op(promote="common")
def bitwise_or(x, y):
    return np.bitwise_or(x, y), None


@op(promote="common")
def bitwise_xor(x, y):
    return np.bitwise_xor(x, y), None


@op
def isnan(x):
    return np.isnan(x), None


@op
def isinf(x):
    return np.isinf(x), None


@op
def isfinite(x):
    return np.isfinite(x), None
