"""Scatters elements and reduces those with equal indices: their product, maximum or minimum."""

from __future__ import annotations

import math

import numpy as np

from ..backends.device import RawArray, is_on_host
from ..backends.dtypes import is_floating_point
from ..core.op import op
from ..core.tensor import Tensor, raw_of
from .gather_along import at_least_1d, scatter_index
from .gather_scatter import gather_nd, index_mask, ravel_index, scatter_nd


@op
def scatter_extreme(x, dim, index, src, greatest, include_self):
    """The maximum or minimum of the elements with equal indices."""
    shape, whole = x.shape, x.shape or (1,)
    x, places = at_least_1d(x), scatter_index("scatter_reduce", at_least_1d(x), dim, index)
    y = _fold(np.maximum if greatest else np.minimum, x, places, src, include_self)
    dims = tuple(range(len(whole)))
    kept, sent = np.equal(x, y), np.equal(src, y[places])
    shares = kept + scatter_nd.dual(sent, places, dims, whole)  # how many share the gradient
    if not include_self:
        kept = kept & ~index_mask(places, whole, index)

    def grad_x(g):
        return (kept * (at_least_1d(g) / shares)).reshape(shape)

    return y.reshape(shape), (
        grad_x, None, None, lambda g: sent * gather_nd.dual(at_least_1d(g) / shares, *places, dims=dims),
    )


@op
def scatter_prod(x, dim, index, src, include_self):
    """The product of the elements with equal indices.

    Its derivative is the product of the others: y / x, or y with 1 for x where x is the only 0. Where several
    are 0 it is 0.
    """
    shape, whole = x.shape, x.shape or (1,)
    places = scatter_index("scatter_reduce", at_least_1d(x), dim, raw_of(index))
    dims = tuple(range(len(whole)))

    def product(x, src):
        if isinstance(x, Tensor) or isinstance(src, Tensor):  # the body runs on Tensors: an op of its own
            return scatter_prod(x, dim, index, src, include_self)
        return _fold(np.multiply, at_least_1d(x), places, src, include_self).reshape(shape)

    def sent_to(y):
        return gather_nd.dual(at_least_1d(y), *places, dims=dims)

    y = product(x, src)

    def grad_x(g):
        factor = np.where(np.equal(x, 0), 1, x)
        others = product(factor, src) / factor
        if not include_self:
            others = np.where(index_mask(places, whole, places[0]).reshape(shape), 0, others)
        return g * others

    def grad_src(g):
        zero = np.equal(src, 0)
        zeros = gather_nd.dual(scatter_nd.dual(zero, places, dims, whole), *places, dims=dims)
        only = np.logical_and(zero, np.equal(zeros, 1))
        others = product(x, np.where(only, 1, src))
        return np.where(only, sent_to(g * others), sent_to(g * y) / np.where(zero, 1, src))

    return y, (grad_x, None, None, grad_src)


def _fold(fold: np.ufunc, x: RawArray, places: tuple, src: RawArray, include_self: bool) -> RawArray:
    """Returns `x` reduced with the elements of `src` at `places`, or replaced by their reduction."""
    y = np.copy(x)
    if not include_self:
        y[places] = _neutral(fold, y.dtype)
    if is_on_host(y):
        fold.at(y, places, src)
    else:
        _fold_sorted(fold, y, places, src)
    return y


def _neutral(fold: np.ufunc, dtype: np.dtype) -> float:
    """Returns the identity of the function."""
    if fold is np.multiply:
        return 1
    if dtype.kind == "b":
        return fold is np.minimum
    if is_floating_point(dtype):
        low, high = -math.inf, math.inf
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return low if fold is np.maximum else high


def _fold_sorted(fold: np.ufunc, y: RawArray, places: tuple, src: RawArray) -> None:
    """For a GPU, which has no atomic product: sorted by place, each element is combined with those 1, 2, 4, …
    before it, as far as they go to the same place; the last one then holds them all."""
    at = ravel_index(places, y.shape).reshape(-1)
    order = np.argsort(at, kind="stable")
    at, total = at[order], src.reshape(-1)[order]
    reach = 1
    while reach < at.size:
        together = np.where(at[reach:] == at[:-reach], fold(total[reach:], total[:-reach]), total[reach:])
        total = np.concatenate([total[:reach], together])
        reach *= 2
    flat = np.concatenate([y.reshape(-1), np.zeros(1, y.dtype, like=y)])  # the end takes what isn't the last
    last = np.concatenate([at[1:] != at[:-1], at[:1] >= 0])
    flat[np.where(last, at, y.size)] = fold(flat[at], total)
    y[...] = flat[:-1].reshape(y.shape)
