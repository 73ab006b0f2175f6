"""The largest and smallest elements, and their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..backends.device import RawArray, is_raw
from ..core.array import Array
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .dims import (
    Dims,
    canonical_dim,
    canonical_dims,
    expand_reduced,
    numpy_names,
    reduction_axes,
    squeeze_reduced,
)
from .elementwise import maximum, minimum
from .reduce import total

__all__ = ["max", "min", "amax", "amin", "aminmax", "argmax", "argmin"]


class ValuesIndices(NamedTuple):
    """Elements of a tensor, and their indices along a dim (int64)."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest elements of a tensor."""

    min: Tensor
    max: Tensor


@numpy_names
def max(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, other: Tensor | None = None
) -> Tensor | ValuesIndices:
    """The largest element; with `dim` (values, indices) along it; of two tensors the elementwise maximum.

    NaN is larger than any number. Without `dim`, equal elements share the gradient evenly; with `dim` all of
    it goes to the one at the index, which is the first.

    Raises:
        RuntimeError: `x` has no elements.
        IndexError: the dim is out of range, or it has size 0.

    >>> x = mytorch.tensor([[1, 5], [4, 2]])
    >>> x.max()
    tensor(5)
    >>> x.max(1)
    ValuesIndices(values=tensor([5 4]), indices=tensor([1 0]))
    """
    require_tensor(x, "max")
    if other is not None or isinstance(dim, (Tensor, Array)) or is_raw(dim):
        return maximum(x, dim if other is None else other)
    if dim is None:
        return _max_of_all(x, keepdim)
    return ValuesIndices(*_max_along(x, dim, keepdim))


@numpy_names
def min(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, other: Tensor | None = None
) -> Tensor | ValuesIndices:
    """The smallest element; with `dim` (values, indices) along it; of two tensors the elementwise minimum.

    As `max`, with NaN smaller than any number.

    >>> mytorch.tensor([[1, 5], [4, 2]]).min(1).indices
    tensor([0 1])
    """
    require_tensor(x, "min")
    if other is not None or isinstance(dim, (Tensor, Array)) or is_raw(dim):
        return minimum(x, dim if other is None else other)
    if dim is None:
        return _min_of_all(x, keepdim)
    return ValuesIndices(*_min_along(x, dim, keepdim))


@numpy_names
@op
def amax(x, dim=None, keepdim=False):
    """The largest element over one dim, several or all; equal ones share the gradient evenly.

    >>> mytorch.tensor([[1, 5], [4, 2]]).amax(0)
    tensor([4 5])
    """
    _check_not_empty("amax", x, dim, RuntimeError)
    return _minmax(np.max, np.equal, x, dim, keepdim)


@numpy_names
@op
def amin(x, dim=None, keepdim=False):
    """The smallest element over one dim, several or all; equal ones share the gradient evenly.

    >>> mytorch.tensor([[1, 5], [4, 2]]).amin(0)
    tensor([1 2])
    """
    _check_not_empty("amin", x, dim, RuntimeError)
    return _minmax(np.min, np.equal, x, dim, keepdim)


@numpy_names
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """`amin` and `amax` over one dim or all, as (min, max).

    >>> mytorch.tensor([3, 1, 2]).aminmax()
    MinMax(min=tensor(1), max=tensor(3))
    """
    dim = None if dim is None else canonical_dim(dim, x.ndim)
    return MinMax(amin(x, dim, keepdim), amax(x, dim, keepdim))


@op
def _max_of_all(x, keepdim):
    _check_not_empty("max", x, None, RuntimeError)
    return _minmax(np.max, _equal_or_nan, x, None, keepdim)


@op
def _min_of_all(x, keepdim):
    _check_not_empty("min", x, None, RuntimeError)
    return _minmax(np.min, _equal_or_nan, x, None, keepdim)


@op(half="float16")
def _max_along(x, dim, keepdim):
    _check_not_empty("max", x, dim, RuntimeError)
    return _minmax_along(np.argmax, x, dim, keepdim)


@op(half="float16")
def _min_along(x, dim, keepdim):
    _check_not_empty("min", x, dim, RuntimeError)
    return _minmax_along(np.argmin, x, dim, keepdim)


@numpy_names
@op(half="float16")
def argmax(x, dim=None, keepdim=False):
    """The index of the largest element, along `dim` or in `x` flattened; int64, of equal ones the first.

    >>> mytorch.tensor([[1, 5], [4, 2]]).argmax(1)
    tensor([1 0])
    """
    return _argminmax("argmax", np.argmax, x, dim, keepdim), None


@numpy_names
@op(half="float16")
def argmin(x, dim=None, keepdim=False):
    """The index of the smallest element, along `dim` or in `x` flattened; int64, of equal ones the first.

    >>> mytorch.tensor([[1, 5], [4, 2]]).argmin(1)
    tensor([0 1])
    """
    return _argminmax("argmin", np.argmin, x, dim, keepdim), None


def _minmax(function: Callable, same: Callable, x: RawArray, dim: Dims, keepdim: bool) -> tuple:
    axes = reduction_axes(dim, x.ndim)
    y = function(x, axis=axes, keepdims=True)
    return squeeze_reduced(y, axes, keepdim), split_among_ties(x, y, axes, keepdim, same)


def _equal_or_nan(x: RawArray, y: RawArray) -> RawArray:
    return np.where(np.isnan(y), np.isnan(x), np.equal(x, y))


def split_among_ties(
    x: RawArray, y: RawArray, axes: tuple[int, ...] | None, keepdim: bool, same: Callable = _equal_or_nan
) -> Callable:
    """Returns the vjp of a `y` selected from `x`: elements that are the same as `y` share the gradient."""

    def vjp(g):
        ties = same(x, y)
        return ties * (expand_reduced(g, axes, keepdim) / total(ties, axes, True, x.dtype))

    return vjp


def _minmax_along(locate: Callable, x: RawArray, dim: Dims, keepdim: bool) -> tuple:
    axis = canonical_dim(dim, x.ndim)
    index = locate(np.reshape(x, x.shape or 1), axis=axis)
    return select_along(x, np.expand_dims(index, axis), axis, keepdim)


def select_along(x: RawArray, index: RawArray, axis: int, keepdim: bool) -> tuple:
    """Selects one element of each line along the axis: ((values, indices), vjp).

    Args:
        index: of the element, in the shape of x (at least 1-d) with size 1 at the axis.
    """
    shape, whole = x.shape, x.shape or (1,)
    values = np.take_along_axis(np.reshape(x, whole), index, axis)
    axes, keepdim = (axis,) if shape else None, keepdim and shape
    position = np.reshape(np.arange(whole[axis], like=index), (-1,) + (1,) * (len(whole) - 1 - axis))

    def vjp(g):
        return np.reshape(np.where(np.equal(position, index), np.reshape(g, index.shape), 0), shape)

    return (squeeze_reduced(values, axes, keepdim), squeeze_reduced(index, axes, keepdim)), vjp


def _argminmax(name: str, locate: Callable, x: RawArray, dim: Dims, keepdim: bool) -> RawArray:
    if x.dtype == bool:
        raise RuntimeError(f"{name}(): does not support bool tensors")
    axis = None if dim is None else canonical_dim(dim, x.ndim)
    _check_not_empty(name, x, axis, IndexError)
    return locate(x, axis=axis if x.ndim else None, keepdims=keepdim)


def _check_not_empty(name: str, x: RawArray, dim: Dims, error: type) -> None:
    """Raises if a dim to reduce has no elements."""
    if dim is None or dim == ():
        if 0 in x.shape:
            raise error(f"{name}(): expected a dim to reduce: the tensor of shape {x.shape} has no elements")
        return
    for d in canonical_dims(dim, x.ndim):
        if x.ndim and x.shape[d] == 0:
            raise IndexError(f"{name}(): expected dim {d} to have non-zero size, got shape {x.shape}")
