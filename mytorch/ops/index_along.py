"""Slices along one dim, or elements of the flattened tensor, by a vector of indices.

An index that is out of bounds is an error, on a GPU after the next wait for it (see `bounds`). Until then
CuPy takes it modulo the size of the dim.
"""

from __future__ import annotations

import numpy as np

from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .bounds import check_index
from .dims import canonical_dim, numpy_names
from .gather_along import check_bounds, check_integers
from .gather_scatter import FULL, gather_nd, index_mask, scatter_sum
from .mask import masked_fill, where
from .scalars import Number, as_number
from .scatter_along import scatter, scatter_add
from .shape import reshape

__all__ = ["index_select", "index_add", "index_copy", "index_fill", "take", "put"]


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` along `dim` at `index`, a vector of integers from 0 to the size of the dim.

    Raises:
        IndexError: the dim is out of range; an index is out of bounds; `index` is not a vector.
        RuntimeError: `index` is neither int64 nor int32; not one index into a 0-d tensor.

    >>> mytorch.tensor([[1, 2], [3, 4]]).index_select(0, mytorch.tensor([1, 1]))
    tensor([[3 4]
            [3 4]])
    """
    require_tensor(input, "index_select")
    check_integers("index_select", index)
    if index.ndim > 1:
        raise IndexError(f"index_select(): expected a vector of indices, got shape {list(index.shape)}")
    if input.ndim == 0:
        if index.numel() != 1:
            raise RuntimeError(f"index_select(): a 0-d tensor takes 1 index, got {index.numel()}")
        return reshape(index_select(reshape(input, 1), dim, index), ())
    return _index_select(input, canonical_dim(dim, input.ndim), index)


@op(half=True)
def _index_select(x, dim, index):
    check_bounds("index_select", index, dim, x.shape[dim], IndexError)
    y, vjp = gather_nd.forward(x, index.reshape(-1), dims=(dim,))
    return y, (vjp, None, None)


@numpy_names
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of `input` with alpha * source[i] added to its slice index[i] along `dim`, for every i.

    Raises:
        IndexError: the dim is out of range; `index` is not a vector.
        RuntimeError: an index is out of bounds; dtypes or shapes don't fit.

    >>> mytorch.zeros(2).index_add(0, mytorch.tensor([1, 1]), mytorch.ones(2))
    tensor([0.00000 2.00000])
    """
    dim = _check_slices("index_add", input, dim, index, source, RuntimeError)
    if input.ndim == 0:
        return reshape(index_add(reshape(input, 1), 0, index, reshape(source, 1), alpha=alpha), ())
    alpha = as_number(alpha, input.dtype, "index_add").item()
    return _index_add(input, dim, index, source, alpha=alpha)


@op
def _index_add(x, dim, index, source, alpha):
    check_bounds("index_add", index, dim, x.shape[dim])
    index = index.reshape(-1)
    y = x + alpha * scatter_sum(source, (index,), (dim,), x.shape)
    return y.astype(x.dtype, copy=False), (
        lambda g: g, None, None, lambda g: alpha * gather_nd.dual(g, index, dims=(dim,)),
    )


@numpy_names
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with source[i] as its slice index[i] along `dim`, for every i; the last one wins.

    Raises:
        IndexError: the dim is out of range; an index is out of bounds; `index` is not a vector.
        RuntimeError: `index` is not int64; dtypes or shapes don't fit.

    >>> mytorch.zeros(3).index_copy(0, mytorch.tensor([2]), mytorch.ones(1))
    tensor([0.00000 0.00000 1.00000])
    """
    check_integers("index_copy", index, ("int64",))
    dim = _check_slices("index_copy", input, dim, index, source, IndexError)
    if input.ndim == 0:
        return reshape(index_copy(reshape(input, 1), 0, index, reshape(source, 1)), ())
    return _index_copy(input, dim, index, source)


@op(half="float16")
def _index_copy(x, dim, index, source):
    check_bounds("index_copy", index, dim, x.shape[dim], IndexError)
    index, y = index.reshape(-1), np.copy(x)
    y[(*(FULL,) * dim, index)] = source
    marks = (-1, *(1,) * (x.ndim - dim - 1))
    size = x.shape[dim]

    def grad_x(g):
        return np.where(index_mask((index,), (size,), index).reshape(marks), 0, g)

    return y, (grad_x, None, None, lambda g: gather_nd.dual(g, index, dims=(dim,)))


def _check_slices(name, x, dim, index, source, error):
    """`dim` counted from the front; `source` must have x's dtype, and as many slices as there are indices."""
    require_tensor(x, name)
    require_tensor(source, f"source of {name}")
    check_integers(name, index)
    dim = canonical_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"{name}(): expected a vector of indices, got shape {list(index.shape)}")
    if source.dtype != x.dtype:
        raise RuntimeError(f"{name}(): expected a source of dtype {x.dtype}, got {source.dtype}")
    if x.ndim == 0:
        if source.numel() != 1 or index.numel() != 1:
            shapes = f"{list(index.shape)} and {list(source.shape)}"
            raise error(f"{name}(): a 0-d tensor takes one index and one element, got shapes {shapes}")
        return dim
    wanted = (*x.shape[:dim], index.numel(), *x.shape[dim + 1 :])
    if source.shape != wanted:
        same_slices = source.ndim == x.ndim and (
            source.shape[:dim] + source.shape[dim + 1 :] == x.shape[:dim] + x.shape[dim + 1 :]
        )
        kind = error if same_slices or source.ndim != x.ndim else RuntimeError
        raise kind(f"{name}(): source must be of shape {list(wanted)}, got {list(source.shape)}")
    return dim


@numpy_names
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """A copy of `input` with `value`, a number or a 0-d tensor, in its slices `index` along `dim`.

    Raises:
        IndexError: the dim is out of range; an index is out of bounds, or not of int64.
        RuntimeError: `index` is not a vector; `value` has dims, or doesn't fit the input's dtype.

    >>> mytorch.arange(3).index_fill(0, mytorch.tensor([1]), 9)
    tensor([0 9 2])
    """
    require_tensor(input, "index_fill")
    require_tensor(index, "index of index_fill")
    if str(index.dtype) != "int64":
        raise IndexError(f"index_fill(): expected dtype int64 for index, got {index.dtype}")
    if index.ndim > 1:
        raise RuntimeError(f"index_fill(): expected a vector of indices, got shape {list(index.shape)}")
    dim = canonical_dim(dim, input.ndim)
    return masked_fill(input, _slice_mask(index, dim, tuple(input.shape)), value)


@op
def _slice_mask(index, dim, shape):
    """A mask that is True in the slices `index` along `dim`, and broadcasts to `shape`."""
    size = shape[dim] if shape else 1
    check_bounds("index_fill", index, dim, size, IndexError, negative=True)
    mask = index_mask((index.reshape(-1),), (size,), index)
    return mask.reshape((size, *(1,) * (len(shape) - dim - 1)) if shape else ()), None


def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened `input` at `index`, in its shape; negative ones count from the end.

    Raises:
        IndexError: an index is out of bounds.
        RuntimeError: `index` is not int64.

    >>> mytorch.tensor([[1, 2], [3, 4]]).take(mytorch.tensor([0, 3]))
    tensor([1 4])
    """
    check_integers("take", index, ("int64",))
    require_tensor(input, "take")
    check_index(index, 0, input.numel(), "take")
    return gather_nd(reshape(input, -1), index, dims=(0,))


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at `index`, as of `take`.

    Args:
        accumulate: add them to the elements of `input`.

    Raises:
        IndexError: an index is out of bounds; not as many elements as indices.
        RuntimeError: `index` is not int64; dtypes differ.

    >>> mytorch.zeros(2, 2).put(mytorch.tensor([3]), mytorch.tensor([5.0]))
    tensor([[0.00000 0.00000]
            [0.00000 5.00000]])
    """
    check_integers("put", index, ("int64",))
    require_tensor(input, "put")
    require_tensor(source, "source of put")
    count = input.numel()
    if source.numel() != index.numel():
        raise IndexError(f"put(): {source.numel()} elements for {index.numel()} indices")
    check_bounds("put", index, 0, count, IndexError, negative=True)
    index = reshape(where(index < 0, index + count, index), -1)
    send = scatter_add if accumulate else scatter
    return reshape(send(reshape(input, -1), 0, index, reshape(source, -1)), input.shape)
