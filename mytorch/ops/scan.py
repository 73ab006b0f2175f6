"""Cumulative sums, products, maxima, minima and log-sum-exps along a dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backends.device import RawArray, is_on_host, is_raw
from ..backends.dtypes import is_floating_point
from ..core.op import op
from ..core.tensor import Tensor
from .dims import canonical_dim, numpy_names
from .gather_scatter import index_along_dim, scatter_sum
from .minmax import ValuesIndices
from .reduce import sum_dtype

__all__ = ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]


@numpy_names
@op
def cumsum(x, dim, *, dtype=None):
    """The cumulative sum along `dim`: y[i] = x[0] + … + x[i].

    Args:
        dtype: of the result; `x` is cast to it first. Default: that of `x`, int64 for integers and bools.

    >>> mytorch.tensor([1, 2, 3]).cumsum(0)
    tensor([1 3 6])
    """
    axis, shape, dtype = canonical_dim(dim, x.ndim), x.shape, sum_dtype(x, dtype)
    y = np.cumsum(np.reshape(x, shape or 1), axis, dtype=dtype)

    def vjp(g):
        g = np.reshape(g, shape or 1)
        return np.reshape(np.flip(np.cumsum(np.flip(g, axis), axis), axis), shape)

    return np.reshape(y, shape), vjp


@numpy_names
@op
def cumprod(x, dim, *, dtype=None):
    """The cumulative product along `dim`: y[i] = x[0] ⋯ x[i]; `dtype` as for `cumsum`.

    The gradient needs no division, so zeros do no harm: it is x[0] ⋯ x[k-1] times the sum of
    g[i] x[k+1] ⋯ x[i] over i >= k, which `_weighted_sums` finds.

    >>> mytorch.tensor([1, 2, 3]).cumprod(0)
    tensor([1 2 6])
    """
    axis, shape, dtype = canonical_dim(dim, x.ndim), x.shape, sum_dtype(x, dtype)
    x = np.reshape(x, shape or 1)
    y = np.cumprod(x, axis, dtype=dtype)

    def vjp(g):
        first = _slice_along(axis, 0, 1)
        before = np.concatenate([np.ones_like(x[first]), x[_slice_along(axis, 0, -1)]], axis)
        after = x[_slice_along(axis, 1, None)]
        sums = _weighted_sums(np.reshape(g, x.shape), after, axis)
        return np.reshape(np.cumprod(before, axis) * sums, shape)

    return np.reshape(y, shape), vjp


@numpy_names
@op
def logcumsumexp(x, dim):
    """The cumulative log-sum-exp along `dim`: y[i] = log(exp(x[0]) + … + exp(x[i])), without overflow.

    Raises:
        NotImplementedError: `x` isn't floating-point.

    >>> mytorch.zeros(3).logcumsumexp(0)
    tensor([0.00000 0.69315 1.09861])
    """
    axis, shape = canonical_dim(dim, x.ndim), x.shape
    if not is_floating_point(x.dtype):
        raise NotImplementedError(f"logcumsumexp(): expected a floating-point dtype, got {x.dtype}")
    x = np.reshape(x, shape or 1)
    y = running(np.logaddexp, x, axis)

    def vjp(g):  # exp(x[k] - y[k]) times the sum of g[i] exp(y[k] - y[i]) over i >= k: nothing overflows
        steps = np.exp(y[_slice_along(axis, 0, -1)] - y[_slice_along(axis, 1, None)])
        sums = _weighted_sums(np.reshape(g, x.shape), steps, axis)
        return np.reshape(np.exp(x - y) * sums, shape)

    return np.reshape(y, shape), vjp


@numpy_names
def cummax(x: Tensor, dim: int) -> ValuesIndices:
    """The cumulative maximum along `dim`, and its index, as (values, indices); of equal ones the last.

    NaN is larger than any number.

    >>> mytorch.tensor([1, 3, 2]).cummax(0)
    ValuesIndices(values=tensor([1 3 3]), indices=tensor([0 1 1]))
    """
    return ValuesIndices(*_running_minmax(x, np.maximum, dim))


@numpy_names
def cummin(x: Tensor, dim: int) -> ValuesIndices:
    """The cumulative minimum along `dim`, and its index; as `cummax`, with NaN smaller than all.

    >>> mytorch.tensor([3, 1, 2]).cummin(0)
    ValuesIndices(values=tensor([3 1 1]), indices=tensor([0 1 1]))
    """
    return ValuesIndices(*_running_minmax(x, np.minimum, dim))


@op(half="float16")
def _running_minmax(x, function, dim):
    axis, shape = canonical_dim(dim, x.ndim), x.shape
    x, whole = np.reshape(x, shape or 1), shape or (1,)
    y = running(function, x, axis)
    reached = np.equal(x, y) | np.not_equal(x, x)
    position = np.reshape(np.arange(whole[axis], like=x), (-1,) + (1,) * (len(whole) - 1 - axis))
    index = running(np.maximum, np.where(reached, position, 0), axis)
    return (np.reshape(y, shape), np.reshape(index, shape)), lambda g: _add_along.dual(g, index, axis)


@op(half="float16")
def _add_along(g, index, axis):
    """Returns the gradients scattered to the indices of their elements along the axis, and summed."""
    shape, whole = g.shape, index.shape
    y = scatter_sum(np.reshape(g, whole), index_along_dim(index, axis), range(len(whole)), whole)
    return np.reshape(y, shape), lambda gg: np.reshape(
        np.take_along_axis(np.reshape(gg, whole), index, axis), shape
    )


def running(function: Callable, x: RawArray, axis: int) -> RawArray:
    """function.accumulate(x, axis), which only NumPy has, for an associative ufunc."""
    if is_on_host(x):
        return function.accumulate(x, axis)
    if is_raw(x) and x.shape[axis] < 2:
        return x.copy()  # `scan` would return x itself, as it may for a Tensor
    return scan(lambda before, now: (function(before[0], now[0]),), (x,), axis)[0]


def scan(combine: Callable, parts: Sequence[RawArray], axis: int) -> Sequence[RawArray]:
    """Running results of an associative function of tuples of arrays, in log2(n) passes over all elements.

    After the pass with step s each element is the result of the 2 s elements up to it.
    Source: Hillis and Steele 1986, https://doi.org/10.1145/7902.7903
    """
    step, n = 1, parts[0].shape[axis]
    while step < n:
        before = [p[_slice_along(axis, 0, n - step)] for p in parts]
        now = [p[_slice_along(axis, step, None)] for p in parts]
        first = [p[_slice_along(axis, 0, step)] for p in parts]
        parts = [np.concatenate(p, axis) for p in zip(first, combine(before, now), strict=True)]
        step *= 2
    return parts


def _weighted_sums(g: RawArray, steps: RawArray, axis: int) -> RawArray:
    """s[k] = g[k] + steps[k] s[k+1], from the last, which is g itself, to the first.

    Each element is the function s -> g + a s; such functions are composed by a `scan` from the end.
    """

    def compose(after, now):
        return now[0] * after[0], now[1] + now[0] * after[1]

    a = np.concatenate([steps, np.ones_like(g[_slice_along(axis, 0, 1)])], axis)
    return np.flip(scan(compose, (np.flip(a, axis), np.flip(g, axis)), axis)[1], axis)


def _slice_along(axis: int, start: int, stop: int | None) -> tuple[slice, ...]:
    """Returns the index of the elements from `start` to `stop` along the axis."""
    return (slice(None),) * axis + (slice(start, stop),)
