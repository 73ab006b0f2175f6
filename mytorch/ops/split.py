"""Splits a tensor along a dim: views of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..backends.address import address_of
from ..backends.device import RawArray, is_on_host, join
from ..core.graph import owner_of
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .dims import as_sizes, canonical_dim, numpy_names
from .index import getitem

__all__ = [
    "split", "split_with_sizes", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit", "unbind",
]


@numpy_names
def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int] | None = None, dim: int = 0, *,
    split_size: int | Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """The tensor split along `dim` into parts of this size (the last may be smaller) or these sizes; views.

    Args:
        split_size: what the method calls `split_size_or_sections`.

    Raises:
        RuntimeError: the sizes don't sum up to that of the dim, or one is negative; it is 0-d.
        TypeError: no size, or one under both names.

    >>> mytorch.arange(5).split(2)
    (tensor([0 1]), tensor([2 3]), tensor([4]))
    """
    if (split_size_or_sections is None) == (split_size is None):
        raise TypeError(
            f"split(): expected one size or list of sizes, got {split_size_or_sections} and {split_size}"
        )
    split_size_or_sections = split_size if split_size_or_sections is None else split_size_or_sections
    dim, size = _dim_and_size(tensor, dim, "split")
    sizes = as_sizes((split_size_or_sections,), "split")
    if isinstance(split_size_or_sections, Sequence):
        if sum(sizes) != size or any(n < 0 for n in sizes):
            raise RuntimeError(
                f"split(): expects sizes that are not negative and sum exactly to {size} "
                f"(the size of dimension {dim}), got {list(sizes)}"
            )
    else:
        sizes = _equal_sizes(size, sizes[0])
    return _split(tensor, sizes, dim)


def _equal_sizes(total, each):
    if each < 0 or (each == 0 and total):
        raise RuntimeError(f"split(): can't cut a dimension of size {total} into pieces of size {each}")
    if total == 0:
        return (0,)
    return (each,) * (total // each) + ((total % each,) if total % each else ())


@numpy_names
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """The input split along `dim` into parts of these sizes; see `split`.

    >>> mytorch.arange(3).split_with_sizes([1, 2])
    (tensor([0]), tensor([1 2]))
    """
    return split(input, list(as_sizes((split_sizes,), "split_with_sizes")), dim)


@numpy_names
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The input split along `dim` into at most `chunks` parts, all but the last of one size; views.

    >>> mytorch.arange(4).chunk(2)
    (tensor([0 1]), tensor([2 3]))
    """
    dim, size = _dim_and_size(input, dim, "chunk")
    if chunks <= 0:
        raise RuntimeError(f"chunk(): expects `chunks` to be greater than 0, got {chunks}")
    return _split(input, (0,) * chunks if size == 0 else _equal_sizes(size, -(-size // chunks)), dim)


@numpy_names
def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int] | Tensor | None = None, dim: int = 0, *,
    indices: Sequence[int] | None = None, sections: int | None = None,
) -> tuple[Tensor, ...]:
    """The input split along `dim` into a number of parts, as equal as possible, or at these indices; views.

    Args:
        indices_or_sections: an int, or ints; also as a tensor with no dims, or one. `indices` and `sections`
            are other names.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: the number of parts isn't positive; a tensor of another dtype than int64, or with more
            dims, or on a GPU; the input is 0-d.

    >>> mytorch.arange(5).tensor_split(2)
    (tensor([0 1 2]), tensor([3 4]))
    """
    given = [x for x in (indices_or_sections, indices, sections) if x is not None]
    if len(given) != 1:
        raise TypeError(f"tensor_split(): expected either sections or indices, got {given}")
    dim, size = _dim_and_size(input, dim, "tensor_split")
    (cuts,) = (_as_ints(x) if isinstance(x, Tensor) else x for x in given)
    if not isinstance(cuts, Sequence):
        (count,) = as_sizes(cuts, "tensor_split")
        if count <= 0:
            raise RuntimeError(f"tensor_split(): number of sections must be larger than 0, got {count}")
        cuts = [i * (size // count) + min(i, size % count) for i in range(1, count)]
    bounds = (0, *as_sizes((cuts,), "tensor_split"), None)
    parts = [(slice(None),) * dim + (slice(a, b),) for a, b in zip(bounds, bounds[1:], strict=False)]
    return tuple([getitem(input, part) for part in parts])  # they may overlap


def _as_ints(x: Tensor) -> int | list[int]:
    if x.ndim > 1 or str(x.dtype) != "int64" or x.is_cuda:
        raise RuntimeError(
            "tensor_split(): expected an int64 tensor with one dim or none on the CPU, got "
            f"{x.dtype} of shape {list(x.shape)} on {x.device}"
        )
    return x.tolist()


def hsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1, of a vector along dim 0; a number of parts must divide the size.

    >>> mytorch.arange(4).hsplit(2)
    (tensor([0 1]), tensor([2 3]))
    """
    return _split_evenly("hsplit", input, indices_or_sections, 1 if input.ndim > 1 else 0, 1)


def vsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0 of at least a matrix; a number of parts must divide the size.

    >>> [part.shape for part in mytorch.ones(4, 2).vsplit(2)]
    [Size([2, 2]), Size([2, 2])]
    """
    return _split_evenly("vsplit", input, indices_or_sections, 0, 2)


def dsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 2; a number of parts must divide the size.

    >>> [part.shape for part in mytorch.ones(1, 2, 4).dsplit(2)]
    [Size([1, 2, 2]), Size([1, 2, 2])]
    """
    return _split_evenly("dsplit", input, indices_or_sections, 2, 3)


def _split_evenly(name, x, cuts, dim, least):
    require_tensor(x, name)
    if x.ndim < least:
        raise RuntimeError(f"{name}(): requires a tensor with at least {least} dimensions, got {x.ndim}")
    if isinstance(cuts, int) and (cuts <= 0 or x.shape[dim] % cuts):
        raise RuntimeError(f"{name}(): the size of dim {dim}, {x.shape[dim]}, is not divisible by {cuts}")
    return tensor_split(x, cuts, dim)


def _dim_and_size(x, dim, name):
    require_tensor(x, name)
    if not x.shape:
        raise RuntimeError(f"{name}() expects at least a 1-dimensional tensor, got a 0-d one")
    dim = canonical_dim(dim, x.ndim)
    return dim, x.shape[dim]


@op(view=True, outputs=True)
def _split(x, sizes, dim):
    index, parts, shapes, end = (slice(None),) * dim, [], [], 0
    for n in sizes:
        start, end = end, end + n
        parts.append(x[(*index, slice(start, end))])
        shapes.append(parts[-1].shape)

    def vjp(gs):
        some = next(g for g in gs if g is not None)
        gs = [np.zeros(s, some.dtype, like=some) if g is None else g for g, s in zip(gs, shapes, strict=True)]
        whole = joined(gs, dim)
        return join(gs, dim) if whole is None else whole

    return tuple(parts), vjp if parts else None


def joined(parts: Sequence[RawArray], dim: int, new_dim: bool = False) -> np.ndarray | None:
    """Returns `np.concatenate(parts, dim)`, or with `new_dim` `np.stack`, as a view, if memory allows.

    None otherwise: parts of different memory, or not one after the other at equal distances.
    """
    if not all([is_on_host(part) and part.size for part in parts]):
        return None
    first = parts[0]
    shape, strides = list(first.shape), list(first.strides)
    if new_dim:
        shape.insert(dim, len(parts))
        strides.insert(dim, address_of(parts[min(1, len(parts) - 1)]) - address_of(first))
        cuts = range(len(parts))
    else:
        ends = list(itertools.accumulate([part.shape[dim] for part in parts]))
        shape[dim], cuts = ends[-1], map(slice, [0, *ends], ends)
    if not strides[dim]:
        return None
    whole, owner = as_strided(first, shape, strides), owner_of(first)  # not looked into before it is checked
    for part, cut in zip(parts, cuts, strict=True):
        if owner_of(part) is not owner or _layout(part) != _layout(whole[(slice(None),) * dim + (cut, ...)]):
            return None
    return whole


def _layout(a):
    """Returns address, dtype, shape and strides, but those of dims of size 1."""
    steps = [step for step, n in zip(a.strides, a.shape, strict=True) if n > 1]
    return address_of(a), a.dtype, a.shape, steps


@numpy_names
@op(view=True, outputs=True)
def unbind(x, dim=0):
    """The slices of `x` along `dim`, without that dim; views.

    Raises:
        IndexError: the dim is out of range.

    >>> mytorch.tensor([[1, 2], [3, 4]]).unbind()
    (tensor([1 2]), tensor([3 4]))
    """
    if x.ndim == 0:
        raise IndexError(f"unbind(): there is no dimension {dim} in a 0-d tensor")
    dim = canonical_dim(dim, x.ndim)
    index, shape = (slice(None),) * dim, x.shape[:dim] + x.shape[dim + 1 :]

    def vjp(gs):
        some = next(g for g in gs if g is not None)
        gs = [np.zeros(shape, some.dtype, like=some) if g is None else g for g in gs]
        whole = joined(gs, dim, new_dim=True)
        return join([np.expand_dims(g, dim) for g in gs], dim) if whole is None else whole

    parts = tuple([x[(*index, i, ...)] for i in range(x.shape[dim])])
    return parts, vjp if parts else None
