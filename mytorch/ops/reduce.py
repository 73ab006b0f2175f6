"""Reductions: ops that make one value of many, along all dims or some."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.blas import column_sums, rows
from ..tensor import Tensor
from .dims import canonical_dim, canonical_dims, numpy_names
from .op import op

__all__ = [
    "sum", "mean", "var", "std", "var_mean", "std_mean", "prod", "cumsum", "any", "all", "norm", "logsumexp",
]  # fmt: skip


# What they share.


def axes_of(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """The dims to reduce as NumPy's `axis`; None for all of them, which `dim=()` also means."""
    axes = canonical_dims(dim, ndim)
    return None if len(axes) >= ndim or not axes else axes


def restored(g: Any, axes: tuple[int, ...] | None, keepdim: bool) -> Any:
    """`g` with the reduced dims back, of size 1, so that it broadcasts against the input."""
    return g if keepdim or axes is None else np.expand_dims(g, axes)


def reduced(y: Any, axes: tuple[int, ...] | None, keepdim: bool) -> Any:
    """`y`, which has its reduced dims of size 1, without them."""
    return y if keepdim else np.squeeze(y, axis=axes)


def count(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> int:
    """How many elements each result is made of."""
    return math.prod(shape if axes is None else [shape[a] for a in axes])


def widened(x: Any) -> Any:
    """Half precision as float32; anything else as it is."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def total(x: Any, axes: tuple[int, ...] | None, keepdim: bool = False, dtype: Any = None) -> Any:
    """np.sum, in float32 for half precision."""
    if dtype is None and axes and axes == tuple(range(x.ndim - 1)) and _is_dense(x):
        y = column_sums(rows(x))
        return np.expand_dims(y, axes) if keepdim else y
    wide = np.float32 if np.float16 == (dtype or x.dtype) else dtype
    return np.sum(x, axis=axes, keepdims=keepdim, dtype=wide)


def _is_dense(x: Any) -> bool:
    """Are these full-precision floats, end to end in the CPU's memory?"""
    return isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.itemsize > 2 and x.flags.c_contiguous


def _sum_dtype(x: Any, dtype: Any) -> np.dtype:
    """The dtype of a sum or product: integers and bools become int64."""
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    return dtypes.int64 if x.dtype.kind in "biu" else x.dtype


def _float_dtype(name: str, x: Any, dtype: Any = None) -> np.dtype:
    dtype = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    if dtype.kind != "f":
        raise RuntimeError(f"{name}(): expected a floating-point dtype, got {dtype}")
    return dtype


# Sums.


@numpy_names
@op
def sum(x, dim=None, keepdim=False, *, dtype=None):
    """The sum over one dim, several or all.

    Args:
        dtype: of the result; `x` is cast to it first. Default: that of `x`, int64 for integers and bools.
    """
    axes, shape, dtype = axes_of(dim, x.ndim), x.shape, _sum_dtype(x, dtype)
    y = total(x, axes, keepdim, None if dtype == x.dtype else dtype)
    return y.astype(dtype, copy=False), lambda g: np.broadcast_to(restored(g, axes, keepdim), shape)


@numpy_names
@op
def mean(x, dim=None, keepdim=False, *, dtype=None):
    """The mean over one dim, several or all; that of nothing is NaN.

    Raises:
        RuntimeError: neither `x` nor `dtype` is floating-point.
    """
    axes, shape, dtype = axes_of(dim, x.ndim), x.shape, _float_dtype("mean", x, dtype)
    n = count(shape, axes)
    y = total(x, axes, keepdim, None if dtype == x.dtype else dtype) / n
    return y.astype(dtype, copy=False), lambda g: np.broadcast_to(restored(g / n, axes, keepdim), shape)


def _variance(name: str, x: Any, dim: Any, correction: float, keepdim: bool) -> tuple:
    """The variance in full precision, and the function that takes its gradient back to `x`."""
    _float_dtype(name, x)
    axes = axes_of(dim, x.ndim)
    n = count(x.shape, axes)
    freedom = max(n - correction, 0)
    center = total(x, axes, True) / n

    def pull(g):
        return (x - center) * (2 * widened(restored(g, axes, keepdim)) / freedom)

    return total(np.square(x - center), axes, keepdim) / freedom, pull


@op
def _var(x, *, dim, correction, keepdim):
    y, pull = _variance("var", x, dim, correction, keepdim)
    return y.astype(x.dtype, copy=False), pull


@op
def _std(x, *, dim, correction, keepdim):
    y, pull = _variance("std", x, dim, correction, keepdim)
    y = np.sqrt(y)
    return y.astype(x.dtype, copy=False), lambda g: pull(np.where(np.equal(y, 0), 0, g / (2 * y)))


def _spread(op, x, dim, unbiased, keepdim, correction):
    if isinstance(dim, bool):  # x.var(False)
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"expected unbiased or correction, got both: {unbiased} and {correction}")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return op(x, dim=dim, correction=correction, keepdim=keepdim)


@numpy_names
def var(x: Tensor, dim=None, unbiased: bool | None = None, keepdim=False, *, correction=None) -> Tensor:
    """The variance, sum (x - mean)^2 / (n - correction), over one dim, several or all.

    Args:
        correction: what is taken off the number of elements n; by default 1, or 0 if `unbiased` is False.

    Raises:
        RuntimeError: `x` isn't floating-point.
    """
    return _spread(_var, x, dim, unbiased, keepdim, correction)


@numpy_names
def std(x: Tensor, dim=None, unbiased: bool | None = None, keepdim=False, *, correction=None) -> Tensor:
    """The standard deviation, the root of `var`; where it is 0 its gradient is 0."""
    return _spread(_std, x, dim, unbiased, keepdim, correction)


@numpy_names
def var_mean(x: Tensor, dim=None, unbiased=None, keepdim=False, *, correction=None) -> tuple[Tensor, Tensor]:
    """(var, mean)"""
    every = None if isinstance(dim, bool) else dim
    return var(x, dim, unbiased, keepdim, correction=correction), mean(x, every, keepdim)


@numpy_names
def std_mean(x: Tensor, dim=None, unbiased=None, keepdim=False, *, correction=None) -> tuple[Tensor, Tensor]:
    """(std, mean)"""
    every = None if isinstance(dim, bool) else dim
    return std(x, dim, unbiased, keepdim, correction=correction), mean(x, every, keepdim)


# Products and running sums.


@numpy_names
@op
def prod(x, dim=None, keepdim=False, *, dtype=None):
    """The product over one dim or all.

    Args:
        dtype: of the result; `x` is cast to it first. Default: that of `x`, int64 for integers and bools.
    """
    dtype = _sum_dtype(x, dtype)
    axis = None if dim is None else canonical_dim(dim, x.ndim)
    axes = None if axis is None or not x.ndim else (axis,)
    y = np.prod(x, axis=axes, keepdims=keepdim, dtype=np.float32 if dtype == np.float16 else dtype)

    def pull(g):
        rest = _product_of_others(np.reshape(x, -1), 0) if axes is None else _product_of_others(x, axis)
        return restored(g, axes, keepdim) * np.reshape(rest, x.shape)

    return y.astype(dtype, copy=False), pull


def _product_of_others(x: Any, axis: int) -> Any:
    """For each element the product of all others along the axis; y / x would fail where there are zeros."""
    x = widened(x)
    first = (slice(None),) * axis + (slice(0, 1),)
    kept = (slice(None),) * axis + (slice(0, x.shape[axis]),)

    def before(x):
        return np.cumprod(np.concatenate([np.ones_like(x[first]), x], axis)[kept], axis)

    return before(x) * np.flip(before(np.flip(x, axis)), axis)


@numpy_names
@op
def cumsum(x, dim, *, dtype=None):
    """The running sum along `dim`: y[i] = x[0] + … + x[i]."""
    axis, shape, dtype = canonical_dim(dim, x.ndim), x.shape, _sum_dtype(x, dtype)
    y = np.cumsum(np.reshape(x, shape or 1), axis, dtype=np.float32 if dtype == np.float16 else dtype)

    def pull(g):
        g = widened(np.reshape(g, shape or 1))
        return np.reshape(np.flip(np.cumsum(np.flip(g, axis), axis), axis), shape)

    return np.reshape(y, shape).astype(dtype, copy=False), pull


# Truth.


def _truth(function, x, dim, keepdim):
    axes = axes_of(dim, x.ndim)
    y = np.not_equal(x, 0) if dim in ((), []) else function(x, axis=axes, keepdims=keepdim)  # no dim at all
    return (y.astype(x.dtype) if x.dtype == np.uint8 else y), None


@numpy_names
@op
def any(x, dim=None, keepdim=False):
    """Is any element over one dim, several or all not zero? dim=() asks each. bool; uint8 for uint8."""
    return _truth(np.any, x, dim, keepdim)


@numpy_names
@op
def all(x, dim=None, keepdim=False):
    """Are all elements over one dim, several or all not zero? dim=() asks each. bool; uint8 for uint8."""
    return _truth(np.all, x, dim, keepdim)


# Norms and log-sum-exp.


@numpy_names
@op
def norm(x, p="fro", dim=None, keepdim=False, dtype=None):
    """The p-norm of vectors, (sum |x|^p)^(1/p), over one dim, several or all.

    Args:
        p: a number; inf and -inf for the largest and smallest |x|, 0 for how many are not 0; "fro" and None
            mean 2. Where the norm is 0 its gradient is 0; several largest elements share it evenly.

    Raises:
        RuntimeError: `x` isn't floating-point; `dtype` is narrower; no elements, where the p-norm needs one.
        ValueError: another `p`.
    """
    p = _order(p)
    _float_dtype("norm", x)
    dtype = _float_dtype("norm", x, dtype)
    if dtype.itemsize < x.dtype.itemsize:
        raise RuntimeError(f"norm(): dtype {dtype} is narrower than that of the tensor, {x.dtype}")
    axes = axes_of(dim, x.ndim)
    if (p < 0 or p == math.inf) and count(x.shape, axes) == 0:
        raise RuntimeError(f"norm(): the {p}-norm of no elements is not defined: shape {x.shape}, dim {dim}")
    x = widened(x.astype(dtype, copy=False))
    y = _vector_norm(x, p, axes)

    def pull(g):
        return widened(restored(g, axes, keepdim)) * _norm_slope(x, y, p, axes)

    return reduced(y, axes, keepdim).astype(dtype, copy=False), pull


def _order(p: Any) -> float:
    if p is None or p == "fro":
        return 2
    if isinstance(p, (int, float)) and not isinstance(p, bool) and not math.isnan(p):
        return p
    raise ValueError(f"norm(): p is a number or 'fro', got {p!r}")


def _vector_norm(x: Any, p: float, axes: Any) -> Any:
    """The norm, with the reduced dims kept as 1."""
    if p == 2:
        return np.sqrt(total(np.square(x), axes, True))
    size = np.abs(x)
    if p == 1:
        return total(size, axes, True)
    if p == 0:
        return total(np.not_equal(x, 0), axes, True, x.dtype)
    if math.isinf(p):
        return (np.max if p > 0 else np.min)(size, axis=axes, keepdims=True)
    return total(size**p, axes, True) ** (1 / p)


def _norm_slope(x: Any, y: Any, p: float, axes: Any) -> Any:
    """d norm / dx = sign(x) (|x| / norm)^(p - 1)"""
    if p == 2:
        return x / np.where(np.equal(y, 0), 1, y)
    if p == 1:
        return np.sign(x)
    if p == 0:
        return np.zeros_like(x)
    if math.isinf(p):
        reached = np.equal(np.abs(x), y)
        return np.sign(x) * reached / total(reached, axes, True, x.dtype)
    return np.where(np.equal(x, 0), 0, np.sign(x) * (np.abs(x) / y) ** (p - 1))


@numpy_names
@op
def logsumexp(x, dim, keepdim=False):
    """log(sum(exp(x))) over one dim or several, without overflow; integers count as the default float dtype.

    The largest element m is taken out first: m + log(sum(exp(x - m))).
    """
    if x.dtype.kind in "biu":
        x = x.astype(dtypes.get_default_dtype())
    axes, dtype = axes_of(dim, x.ndim), x.dtype
    wide = widened(x)
    m = 0
    if count(x.shape, axes):
        m = np.max(wide, axis=axes, keepdims=True)
        m = np.where(np.isfinite(m), m, 0)
    y = m + np.log(total(np.exp(wide - m), axes, True))

    def pull(g):
        return restored(g, axes, keepdim) * np.exp(x - y)

    return reduced(y, axes, keepdim).astype(dtype, copy=False), pull
