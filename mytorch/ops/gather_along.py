"""Gathers elements along one dim, by a tensor of indices in the shape of the result.

An index that is out of bounds is an error, on a GPU after the next wait for it (see `bounds`). Until then
CuPy takes it modulo the size of the dim.
"""

from __future__ import annotations

import numpy as np

from ..backends.device import RawArray
from ..core.op import NUMBERS, op, require_tensor
from ..core.tensor import Tensor
from .bounds import check_range
from .broadcast import expand
from .dims import canonical_dim, numpy_names
from .gather_scatter import index_along_dim, scatter_nd
from .index import getitem
from .mask import where
from .scalars import Number, as_number
from .shape import reshape

__all__ = ["gather", "take_along_dim"]


@op(half=True)
def gather(input, dim, index, *, sparse_grad=False):
    """y[i, j, k] = x[i, index[i, j, k], k] for dim 1, and so on: y has the shape of `index`.

    Args:
        index: int64 or int32, from 0 to the size of `dim`; in its other dims not larger than `input`.
        sparse_grad: without effect.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: an index is out of bounds, or of a shape or dtype that doesn't fit.

    >>> mytorch.tensor([[1, 2], [3, 4]]).gather(1, mytorch.tensor([[1], [0]]))
    tensor([[2]
            [3]])
    """
    require_tensor(input, "gather")
    x, shape = at_least_1d(input), input.shape
    places, whole = scatter_index("gather", x, dim, index), x.shape
    return x[places], lambda g: scatter_nd.dual(g, places, tuple(range(len(whole))), whole).reshape(shape)


@numpy_names
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, but other dims broadcast, negative indices count from the end, and no dim means flattened.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: an index is out of bounds, not int64, or of a shape that doesn't fit.

    >>> x = mytorch.tensor([[2, 1], [3, 4]])
    >>> x.take_along_dim(x.argsort(1), 1)
    tensor([[1 2]
            [3 4]])
    """
    require_tensor(input, "take_along_dim")
    check_integers("take_along_dim", indices, ("int64",))
    if dim is None:
        input, indices, dim = reshape(input, -1), reshape(indices, -1), 0
    if input.ndim != indices.ndim:
        raise RuntimeError(f"take_along_dim(): input has {input.ndim} dimensions, indices has {indices.ndim}")
    dim = canonical_dim(dim, input.ndim)
    before, after = list(input.shape), list(indices.shape)
    for d, (n, m) in enumerate(zip(input.shape, indices.shape, strict=True)):
        if d != dim:
            before[d] = after[d] = m if n == 1 else n
    indices = where(indices < 0, indices + (before[dim] if before else 1), indices)
    return gather(expand(input, before), dim, expand(indices, after))


# Arguments, those of `scatter` as well.


def at_least_1d(x: RawArray) -> RawArray:
    """A 0-d array counts as one with a single element."""
    return x if x.ndim else x.reshape(1)


def scatter_index(name: str, x: RawArray, dim: int, index: RawArray) -> tuple:
    """Returns the checked index with which `x` is gathered from or scattered into."""
    require_tensor(index, f"index of {name}")
    dim = canonical_dim(dim, x.ndim)
    if index.size == 0:
        return (np.zeros(index.shape, np.int64, like=index),) * x.ndim
    check_integers(name, index)
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
    check_bounds(name, index, dim, x.shape[dim])
    return index_along_dim(index, dim) if index.ndim else (index,)


def scatter_source(name: str, x: Tensor, index: Tensor, src: Tensor | Number) -> Tensor | np.generic:
    """Returns what is scattered into `x`: a number of its dtype, or the part of `src` that `index` covers."""
    require_tensor(x, name)
    require_tensor(index, f"index of {name}")
    if isinstance(src, NUMBERS):
        return as_number(src, x.dtype, name)
    require_tensor(src, f"src of {name}")
    if src.dtype != x.dtype:
        raise RuntimeError(f"{name}(): expected src to have the tensor's dtype {x.dtype}, got {src.dtype}")
    if src.shape == index.shape:
        return src
    if index.numel() == 0:
        return reshape(getitem(reshape(src, -1), slice(0)), index.shape)
    if max(src.ndim, 1) != max(index.ndim, 1) or any(
        n > m for n, m in zip(index.shape, src.shape, strict=False)
    ):
        shapes = f"{list(index.shape)} to be no larger than src {list(src.shape)}"
        raise RuntimeError(f"{name}(): expected index {shapes}")
    if not index.ndim or not src.ndim:
        return reshape(src if not src.ndim else getitem(src, slice(1)), index.shape)
    return getitem(src, tuple([slice(n) for n in index.shape]))


def check_integers(name: str, index: Tensor | RawArray, dtypes: tuple[str, ...] = ("int64", "int32")) -> None:
    """Raises RuntimeError unless the index has one of these dtypes."""
    require_tensor(index, f"index of {name}")
    if str(index.dtype) not in dtypes:
        raise RuntimeError(f"{name}(): expected dtype {' or '.join(dtypes)} for index, got {index.dtype}")


def check_bounds(
    name: str, index: Tensor | RawArray, dim: int, size: int, error: type[Exception] = RuntimeError,
    negative: bool = False,
) -> None:
    """Raises unless 0 <= index < size; if `negative`, from -size on; see `bounds`."""
    text = f"{name}(): index {{bad}} is out of bounds for dimension {dim} with size {size}"
    check_range(index, -size if negative else 0, size, text, error)
