"""Reductions: ops that make one value of many, along all dims or some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backends import dtypes
from ..backends.blas import column_sums, rows
from ..backends.device import RawArray
from ..backends.dtypes import DTypeLike
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .autocast import autocasts, in_float32
from .compare import isnan, logical_not
from .dims import canonical_dim, count, expand_reduced, numpy_names, reduction_axes, squeeze_reduced

__all__ = ["sum", "mean", "nansum", "nanmean", "prod", "any", "all", "count_nonzero", "logsumexp"]


# Helpers.


def cast(x: RawArray, dtype: np.dtype) -> RawArray:
    """`x` as `dtype`, without a copy where it has it."""
    return x if x.dtype == dtype else x.astype(dtype)


def total(
    x: RawArray, axes: tuple[int, ...] | None, keepdim: bool = False, dtype: DTypeLike = None
) -> RawArray:
    """np.sum, in float32 for half precision."""
    if dtype is None and axes and axes == tuple(range(x.ndim - 1)) and _is_dense(x):
        y = column_sums(rows(x))
        return np.expand_dims(y, axes) if keepdim else y
    dtype = np.float32 if dtypes.is_half(dtype or x.dtype) else dtype
    return np.sum(x, axis=axes, keepdims=keepdim, dtype=dtype)


def _is_dense(x: RawArray) -> bool:
    """Tests for contiguous float32 or float64 on the CPU."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.itemsize > 2 and x.flags.c_contiguous


def sum_dtype(x: RawArray, dtype: DTypeLike) -> np.dtype:
    """The dtype of a sum or product: integers and bools become int64."""
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    return dtypes.int64 if x.dtype.kind in "biu" else x.dtype


def float_dtype(name: str, x: RawArray, dtype: DTypeLike = None) -> np.dtype:
    """`dtype`, or that of `x`.

    Raises:
        RuntimeError: it is not floating-point.
    """
    dtype = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    if not dtypes.is_floating_point(dtype):
        raise RuntimeError(f"{name}(): expected a floating-point dtype, got {dtype}")
    return dtype


# Sums and means.


@numpy_names
@op(half="float16")
def sum(x, dim=None, keepdim=False, *, dtype=None):
    """The sum over one dim, several or all.

    Args:
        dtype: of the result; `x` is cast to it first. Default: that of `x`, int64 for integers and bools.

    >>> x = mytorch.tensor([[1, 2], [3, 4]])
    >>> x.sum()
    tensor(10)
    >>> x.sum(0)
    tensor([4 6])
    >>> x.sum(1, keepdim=True)
    tensor([[3]
            [7]])
    """
    axes, shape, dtype = reduction_axes(dim, x.ndim), x.shape, sum_dtype(x, dtype)
    y = total(x, axes, keepdim, None if dtype == x.dtype else dtype)
    return cast(y, dtype), lambda g: np.broadcast_to(expand_reduced(g, axes, keepdim), shape)


@numpy_names
@op(half="float16")
def mean(x, dim=None, keepdim=False, *, dtype=None):
    """The mean over one dim, several or all; that of nothing is NaN.

    Raises:
        RuntimeError: neither `x` nor `dtype` is floating-point.

    >>> mytorch.tensor([[1.0, 2.0], [3.0, 4.0]]).mean(0)
    tensor([2.00000 3.00000])
    """
    shape, dtype, axes = x.shape, float_dtype("mean", x, dtype), reduction_axes(dim, x.ndim)
    n = count(shape, axes)
    y = total(x, axes, keepdim, None if dtype == x.dtype else dtype) / n
    return cast(y, dtype), lambda g: np.broadcast_to(expand_reduced(g / n, axes, keepdim), shape)


@numpy_names
@op(half="float16")
def nansum(x, dim=None, keepdim=False, *, dtype=None):
    """The sum of all that is not NaN; arguments as for `sum`.

    >>> mytorch.tensor([1.0, float("nan")]).nansum()
    tensor(1.00000)
    """
    known = np.equal(x, x)
    y, vjp = sum.forward(np.where(known, x, 0), dim, keepdim, dtype=dtype)
    return y, lambda g: vjp(g) * known


@numpy_names
def nanmean(x: Tensor, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """The mean of all that is not NaN; arguments and errors as for `mean`.

    >>> mytorch.tensor([1.0, float("nan"), 3.0]).nanmean()
    tensor(2.00000)
    """
    require_tensor(x, "nanmean")
    float_dtype("nanmean", x)
    float_dtype("nanmean", x, dtype)
    return nansum(x, dim, keepdim, dtype=dtype) / sum(logical_not(isnan(x)), dim, keepdim)


@autocasts(in_float32)
@numpy_names
@op
def prod(x, dim=None, keepdim=False, *, dtype=None):
    """The product over one dim or all.

    Args:
        dtype: of the result; `x` is cast to it first. Default: that of `x`, int64 for integers and bools.

    >>> mytorch.tensor([2, 3, 4]).prod()
    tensor(24)
    """
    dtype, shape = sum_dtype(x, dtype), x.shape
    axes = None if dim is None else reduction_axes(canonical_dim(dim, x.ndim), x.ndim)
    axis = axes[0] if axes else None
    y = np.prod(x, axis=axis, keepdims=keepdim, dtype=dtype)

    def vjp(g):
        rest = _product_of_others(x, axis) if axes else _product_of_others(np.reshape(x, -1), 0)
        # Without zeros PyTorch's is y / x: NaN for an x of inf or NaN.
        rest = np.where(np.isfinite(x) | np.any(x == 0), np.reshape(rest, shape), np.nan)
        return expand_reduced(g, axes, keepdim) * rest.astype(x.dtype)

    return y, vjp


def _product_of_others(x: RawArray, axis: int) -> RawArray:
    """For each element the product of all others along the axis; y / x would fail where there are zeros."""
    first = (slice(None),) * axis + (slice(0, 1),)
    kept = (slice(None),) * axis + (slice(0, x.shape[axis]),)

    def before(x):
        return np.cumprod(np.concatenate([np.ones_like(x[first]), x], axis)[kept], axis)

    return before(x) * np.flip(before(np.flip(x, axis)), axis)


@numpy_names
def logsumexp(x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over one dim or several, without overflow; integers count as the default float dtype.

    The largest element m is taken out first: m + log(sum(exp(x - m))).

    >>> mytorch.zeros(2, 3).logsumexp(1)
    tensor([1.09861 1.09861])
    """
    return _logsumexp(x, dim=dim, keepdim=keepdim)


@op(promote="float")
def _logsumexp(x, *, dim, keepdim):
    axes = reduction_axes(dim, x.ndim)
    m = 0
    if count(x.shape, axes):
        m = np.max(x, axis=axes, keepdims=True)
        m = np.where(np.isfinite(m), m, 0)
    y = m + np.log(total(np.exp(x - m), axes, True))

    def vjp(g):
        return expand_reduced(g, axes, keepdim) * np.exp(x - y)

    return squeeze_reduced(y, axes, keepdim), vjp


# Truth.


@numpy_names
@op(half="float16")
def any(x, dim=None, keepdim=False):
    """Tests whether any element over one dim, several or all is not zero. bool; uint8 for uint8.

    >>> mytorch.tensor([[True, False], [False, False]]).any(1)
    tensor([ True False])
    """
    return _any_or_all(np.any, x, dim, keepdim)


@numpy_names
@op(half="float16")
def all(x, dim=None, keepdim=False):
    """Tests whether all elements over one dim, several or all are not zero. bool; uint8 for uint8.

    >>> mytorch.tensor([[True, False], [True, True]]).all(1)
    tensor([False  True])
    """
    return _any_or_all(np.all, x, dim, keepdim)


def _any_or_all(function, x, dim, keepdim):
    axes = reduction_axes(dim, x.ndim)
    y = np.not_equal(x, 0) if dim in ((), []) else function(x, axis=axes, keepdims=keepdim)  # each element
    return cast(y, x.dtype) if x.dtype == np.uint8 else y, None


@numpy_names
@op(half="float16")
def count_nonzero(x, dim=None):
    """The number of elements over one dim, several or all that are not zero; int64.

    >>> mytorch.tensor([0, 3, 0, 1]).count_nonzero()
    tensor(2)
    """
    return total(np.not_equal(x, 0), reduction_axes(dim, x.ndim), dtype=dtypes.int64), None
