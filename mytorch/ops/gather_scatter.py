"""Elements chosen, replaced or added to along one dim, by tensors of integers.

On the CPU an index that is out of bounds is an error. On a GPU nobody looks, since that would mean waiting
for it: there CuPy takes it modulo the size of the dim.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from .._array import Array
from ..device import is_raw
from ..tensor import Tensor
from .accumulate import along, scatter_sum
from .dims import canonical_dim, numpy_names
from .index import getitem, take_at
from .mask import as_number, where
from .op import NUMBERS, op, require_tensor
from .shape import expand, reshape

__all__ = [
    "gather", "scatter", "scatter_add", "take_along_dim", "take", "index_select", "index_add",
    "repeat_interleave",
]  # fmt: skip


@op
def gather(x, dim, index):
    """y[i, j, k] = x[i, index[i, j, k], k] for dim 1, and so on: y has the shape of `index`.

    Args:
        index: int64 or int32, from 0 to the size of `dim`; in its other dims not larger than `x`.

    Raises:
        IndexError: there is no such dim.
        RuntimeError: an index is out of bounds, or of a shape or dtype that doesn't fit.
    """
    require_tensor(x, "gather")
    x, shape = _at_least_1d(x), x.shape
    places, whole = _places("gather", x, dim, index), x.shape
    return x[places], lambda g: scatter_sum(g, places, range(len(whole)), whole).reshape(shape)


def scatter(x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None) -> Tensor:
    """A copy of `x` in which y[i, index[i, j, k], k] = src[i, j, k] for dim 1, and so on.

    Args:
        index: as for `gather`; if one is there twice, the last wins on the CPU, any on a GPU.
        src: a tensor of x's dtype, in no dim smaller than `index`, or a number; `value` is another name.

    Raises:
        IndexError: there is no such dim.
        RuntimeError: an index is out of bounds; dtypes or shapes don't fit.
    """
    if (src is None) == (value is None):
        raise TypeError("scatter(): expects either src or value")
    return _scatter(x, dim, index, _source("scatter", x, index, value if src is None else src))


@op
def _scatter(x, dim, index, src):
    y = np.copy(x)
    places = _places("scatter", _at_least_1d(y), dim, index)
    _at_least_1d(y)[places] = src

    def grad_x(g):
        g = np.copy(g)
        _at_least_1d(g)[places] = 0
        return g

    return y, (grad_x, None, None, lambda g: _at_least_1d(g)[places])


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `x` in which y[i, index[i, j, k], k] += src[i, j, k] for dim 1, and so on.

    An index that is there twice adds twice.

    Raises:
        IndexError, RuntimeError: as for `scatter`.
        TypeError: `src` is a number.
    """
    if isinstance(src, NUMBERS):
        raise TypeError(f"scatter_add(): src must be a Tensor, got {type(src).__name__}")
    return _scatter_add(x, dim, index, _source("scatter_add", x, index, src))


@op
def _scatter_add(x, dim, index, src):
    shape, whole = x.shape, x.shape or (1,)
    places = _places("scatter_add", _at_least_1d(x), dim, index)
    added = scatter_sum(src, places, range(len(whole)), whole).reshape(shape)
    return (x + added).astype(x.dtype), (lambda g: g, None, None, lambda g: _at_least_1d(g)[places])


@numpy_names
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, but other dims broadcast, negative indices count from the end, and no dim means flattened.

    Raises:
        IndexError: there is no such dim.
        RuntimeError: an index is out of bounds, not int64, or of a shape that doesn't fit.
    """
    require_tensor(x, "take_along_dim")
    _check_integers("take_along_dim", indices, ("int64",))
    if dim is None:
        x, indices, dim = reshape(x, -1), reshape(indices, -1), 0
    if x.ndim != indices.ndim:
        raise RuntimeError(f"take_along_dim(): input has {x.ndim} dimensions, indices has {indices.ndim}")
    dim = canonical_dim(dim, x.ndim)
    before, after = list(x.shape), list(indices.shape)
    for d, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if d != dim:
            before[d] = after[d] = m if n == 1 else n
    indices = where(indices < 0, indices + before[dim], indices)
    return gather(expand(x, before), dim, expand(indices, after))


def take(x: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened `x` at `index`, in its shape; negative ones count from the end.

    Raises:
        IndexError: an index is out of bounds.
        RuntimeError: `index` is not int64.
    """
    _check_integers("take", index, ("int64",))
    return take_at(reshape(x, -1), index, 0)


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `x` along `dim` at `index`, a vector of integers from 0 to the size of the dim.

    Raises:
        IndexError: there is no such dim; an index is out of bounds; `index` is not a vector.
        RuntimeError: `index` is neither int64 nor int32.
    """
    require_tensor(x, "index_select")
    _check_integers("index_select", index)
    if index.ndim > 1 or x.ndim == 0:
        shapes = f"{list(x.shape)} and {list(index.shape)}"
        raise IndexError(f"index_select(): expected a tensor with dims and a vector, got shapes {shapes}")
    return _index_select(x, canonical_dim(dim, x.ndim), index)


@op
def _index_select(x, dim, index):
    _check_bounds("index_select", index, dim, x.shape[dim], IndexError)
    y, vjp = take_at.forward(x, index.reshape(-1), dim)
    return y, (vjp, None, None)


@numpy_names
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of `x` with alpha * source[i] added to its slice index[i] along `dim`, for every i.

    Raises:
        IndexError: there is no such dim.
        RuntimeError: an index is out of bounds; dtypes or shapes don't fit.
    """
    require_tensor(x, "index_add")
    require_tensor(source, "index_add")
    _check_integers("index_add", index)
    dim = canonical_dim(dim, x.ndim)
    wanted = (*x.shape[:dim], math.prod(index.shape), *x.shape[dim + 1 :])
    if source.shape != wanted or source.dtype != x.dtype:
        raise RuntimeError(
            f"index_add(): source must be of shape {list(wanted)} and {x.dtype}, "
            f"got {list(source.shape)} and {source.dtype}"
        )
    return _index_add(x, dim, index, source, alpha=alpha)


@op
def _index_add(x, dim, index, source, alpha):
    _check_bounds("index_add", index, dim, x.shape[dim])
    index = index.reshape(-1)
    y = x + alpha * scatter_sum(source, (index,), (dim,), x.shape)
    return y.astype(x.dtype), (lambda g: g, None, None, lambda g: alpha * np.take(g, index, axis=dim))


@numpy_names
def repeat_interleave(
    x: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each slice of `x` along `dim` (None: each element) repeated next to itself, `repeats` times.

    Args:
        repeats: a number for all, or integers, one a slice. Without it, `x` holds the integers, and the
            result is the index of each copy's origin.
        output_size: the sum of the repeats, which saves a GPU from waiting for it.

    Raises:
        IndexError: there is no such dim.
        RuntimeError: repeats are negative, no integers, not as many as slices, or don't sum to `output_size`.
    """
    require_tensor(x, "repeat_interleave")
    if repeats is None:
        return _origins(x, output_size)
    x, dim = (reshape(x, -1), 0) if dim is None else (x, canonical_dim(dim, x.ndim))
    if isinstance(repeats, (list, tuple)) or is_raw(repeats):
        repeats = Tensor(repeats, device=x.device)
    if isinstance(repeats, (Tensor, Array)) and repeats.numel() != 1:
        if repeats.shape != (x.shape[dim],):
            wanted = f"{x.shape[dim]} slices along dim {dim}"
            raise RuntimeError(f"repeat_interleave(): repeats of shape {list(repeats.shape)} for {wanted}")
        return take_at(x, _origins(repeats, output_size), dim)
    return _repeat_each(x, operator.index(repeats), dim)


@op
def _origins(repeats, total):
    look = total is None or isinstance(repeats, np.ndarray)  # with a total, a GPU needn't be waited for
    if repeats.dtype.kind not in "iu" or (look and np.any(repeats < 0)):
        raise RuntimeError("repeat_interleave(): repeats must be integers and not negative")
    ends = np.cumsum(repeats)
    needed = int(ends[-1:].sum()) if look else total
    if total not in (None, needed):
        raise RuntimeError(f"repeat_interleave(): output_size is {total}, the repeats sum up to {needed}")
    return np.searchsorted(ends, np.arange(needed, like=repeats), side="right"), None


@op
def _repeat_each(x, repeats, dim):
    if repeats < 0 or not x.ndim:
        raise RuntimeError(f"repeat_interleave(): {repeats} repeats of a tensor with shape {list(x.shape)}")
    apart = (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :])
    wide = np.float32 if x.dtype == np.float16 else None
    return np.repeat(x, repeats, axis=dim), lambda g: np.sum(g.reshape(apart), dim + 1, dtype=wide)


# Arguments.


def _at_least_1d(x):
    return x if x.ndim else x.reshape(1)


def _places(name, x, dim, index):
    """What gathers from, or scatters into, the raw array `x`; checked."""
    _check_integers(name, index)
    dim = canonical_dim(dim, x.ndim)
    if index.size == 0:
        return (np.zeros(index.shape, np.int64, like=index),) * x.ndim
    if max(index.ndim, 1) != x.ndim:
        raise RuntimeError(
            f"{name}(): index must have the same number of dimensions as the tensor, got shapes "
            f"{list(index.shape)} and {list(x.shape)}"
        )
    if any(d != dim and n > x.shape[d] for d, n in enumerate(index.shape)):
        raise RuntimeError(
            f"{name}(): expected index {list(index.shape)} to be no larger than {list(x.shape)} "
            f"apart from dimension {dim}"
        )
    _check_bounds(name, index, dim, x.shape[dim])
    return along(index, dim) if index.ndim else (index,)


def _source(name, x, index, src):
    """What is scattered into `x`: a number of its dtype, or the part of `src` that `index` covers."""
    require_tensor(x, name)
    if isinstance(src, NUMBERS):
        return as_number(src, x.dtype, name)
    _check_integers(name, index)
    if src.dtype != x.dtype:
        raise RuntimeError(f"{name}(): expected src to have the tensor's dtype {x.dtype}, got {src.dtype}")
    if src.shape == index.shape:
        return src
    if src.ndim != index.ndim or any(n > m for n, m in zip(index.shape, src.shape, strict=True)):
        shapes = f"{list(index.shape)} to be no larger than src {list(src.shape)}"
        raise RuntimeError(f"{name}(): expected index {shapes}")
    return getitem(src, tuple([slice(n) for n in index.shape]))


def _check_integers(name, index, dtypes=("int64", "int32")):
    require_tensor(index, f"index of {name}")
    if str(index.dtype) not in dtypes:
        raise RuntimeError(f"{name}(): expected dtype {' or '.join(dtypes)} for index, got {index.dtype}")


def _check_bounds(name, index, dim, size, error=RuntimeError):
    """On a GPU nobody looks: that would mean waiting for it."""
    if isinstance(index, np.ndarray) and index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            bad = low if low < 0 else high
            raise error(f"{name}(): index {bad} is out of bounds for dimension {dim} with size {size}")
