"""Sorting, and the k largest or smallest elements."""

from __future__ import annotations

import numpy as np

from ..backends.device import RawArray, computes
from ..core.op import index_of, op
from ..core.tensor import Tensor
from .dims import canonical_dim, numpy_names
from .minmax import ValuesIndices

__all__ = ["sort", "argsort", "msort", "topk"]


@numpy_names
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesIndices:
    """The elements in order along `dim`, and their indices, as (values, indices).

    NaN is larger than any number. Equal elements keep their order, whatever `stable` is.

    >>> mytorch.tensor([3, 1, 2]).sort()
    ValuesIndices(values=tensor([1 2 3]), indices=tensor([1 2 0]))
    """
    return ValuesIndices(*_sort(x, dim=dim, descending=descending))


@numpy_names
@op(half="float16")
def argsort(x, dim=-1, descending=False, stable=False):
    """The indices that put `x` in order along `dim`, see `sort`.

    >>> mytorch.tensor([3, 1, 2]).argsort()
    tensor([1 2 0])
    """
    axis, shape = canonical_dim(dim, x.ndim), x.shape
    return np.reshape(_order(np.reshape(x, shape or 1), axis, descending), shape), None


@numpy_names
def msort(x: Tensor) -> Tensor:
    """The elements in order along the first dim.

    >>> mytorch.tensor([3, 1, 2]).msort()
    tensor([1 2 3])
    """
    return sort(x, 0).values


@numpy_names
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The k largest (or smallest) elements along `dim`, and their indices, as (values, indices).

    NaN is larger than any number. Unless `sorted`, their order is undefined.

    Raises:
        RuntimeError: there are fewer than k elements, k is negative, or `x` is bool.

    >>> values, indices = mytorch.tensor([1, 5, 3]).topk(2)
    >>> values, indices
    (tensor([5 3]), tensor([1 2]))
    """
    return ValuesIndices(*_topk(x, k=index_of(k), dim=dim, largest=largest, ordered=sorted))


@op(half="float16")
def _sort(x, *, dim, descending):
    axis, shape = canonical_dim(dim, x.ndim), x.shape
    x = np.reshape(x, shape or 1)
    index = _order(x, axis, descending)
    values = np.take_along_axis(x, index, axis)
    return (np.reshape(values, shape), np.reshape(index, shape)), _scatter_vjp(index, axis, shape)


@op(half="float16")
def _topk(x, *, k, dim, largest, ordered):
    axis, shape = canonical_dim(dim, x.ndim), x.shape
    x = np.reshape(x, shape or 1)
    n = x.shape[axis]
    k = k if shape or k else 1  # a 0-d tensor has one element
    if not 0 <= k <= n:
        raise RuntimeError(f"topk(): selected index k out of range: {k} of {n} in dim {axis}, shape {shape}")
    if x.dtype == bool:
        raise RuntimeError("topk(): does not support bool tensors")
    index = _partition(x, k, axis, largest)
    if ordered and 0 < k < n:
        index = np.sort(index, axis)  # so that equal elements keep their order
        index = np.take_along_axis(index, _order(np.take_along_axis(x, index, axis), axis, largest), axis)
    values = np.take_along_axis(x, index, axis)
    out = index.shape if shape else ()
    return (np.reshape(values, out), np.reshape(index, out)), _scatter_vjp(index, axis, shape)


def _order(x: RawArray, axis: int, descending: bool) -> RawArray:
    """The stable order. The descending one comes from the mirrored array, so that ties stay in order too."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    mirrored = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(mirrored, axis)


def _partition(x: RawArray, k: int, axis: int, largest: bool) -> RawArray:
    """Returns the indices of the k largest or smallest, unordered: partitioning is O(n), not O(n log n).

    CuPy's partition sorts, too, and waits for the GPU.
    """
    n = x.shape[axis]
    if k in (0, n):
        return _order(x, axis, largest)[(slice(None),) * axis + (slice(0, k),)]
    first = n - k if largest else 0
    if computes(x).type == "cuda":
        parted = _order(x, axis, False)
    else:
        parted = np.argpartition(x, first if largest else k - 1, axis)
    return parted[(slice(None),) * axis + (slice(first, first + k),)]


def _scatter_vjp(index: RawArray, axis: int, shape: tuple[int, ...]):
    """Returns the vjp, which scatters each gradient to the index of its element."""

    def vjp(g):
        g = np.reshape(g, index.shape)
        whole = shape or (1,)
        if not g.shape[axis]:
            return np.zeros(whole, g.dtype, like=index)
        rank = np.full_like(index, -1, shape=whole)  # of the element among the chosen ones
        rank[_index_grid(index, axis)] = _along(np.arange(index.shape[axis], like=index), axis, index.ndim)
        given = np.take_along_axis(g, np.maximum(rank, 0), axis)
        return np.reshape(np.where(np.less(rank, 0), 0, given), shape)

    return vjp


def _index_grid(index: RawArray, axis: int) -> tuple:
    """Returns the index with which x[_index_grid(index, axis)] is np.take_along_axis(x, index, axis)."""
    places = [_along(np.arange(n, like=index), d, index.ndim) for d, n in enumerate(index.shape)]
    places[axis] = index
    return tuple(places)


def _along(x: RawArray, axis: int, ndim: int) -> RawArray:
    """A vector as an array of `ndim` dims that varies along the axis only."""
    return np.reshape(x, (1,) * axis + (-1,) + (1,) * (ndim - 1 - axis))
