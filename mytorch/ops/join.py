"""Several tensors made one, and one made several (views)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tensor import Tensor
from .dims import canonical_dim, numpy_names
from .index import getitem
from .op import op, require_tensor
from .shape import as_sizes, reshape

__all__ = [
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "split", "chunk", "tensor_split", "unbind",
]  # fmt: skip


# One of several.


@numpy_names
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`, equal in their other dims; 1-d ones of size 0 add nothing.

    Raises:
        ValueError: there are none.
        RuntimeError: the shapes don't fit.
    """
    tensors = _several(tensors, "cat")
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of tensors")
    return _cat(*tensors, dim=dim)


concat = concatenate = cat


@op(promote="common")
def _cat(*xs, dim):
    _check_cat(xs, dim)
    joined = [x for x in xs if x.shape != (0,)] or xs[:1]
    dim = canonical_dim(dim, joined[0].ndim)
    vjps, end = [], 0
    for x in xs:
        if x.shape == (0,):
            vjps.append(lambda g: np.zeros_like(g, shape=(0,)))
        else:
            start, end = end, end + x.shape[dim]
            vjps.append(_slicer(dim, slice(start, end)))
    return np.concatenate(joined, axis=dim), tuple(vjps)


def _slicer(dim, part):
    index = (slice(None),) * dim + (part,)
    return lambda g: g[index]


def _check_cat(xs, dim):
    first = None
    for i, x in enumerate(xs):
        if x.ndim == 0:
            raise RuntimeError(f"cat(): zero-dimensional tensor (at position {i}) cannot be concatenated")
        if x.shape == (0,):
            continue
        if first is None:
            first, dim = x.shape, canonical_dim(dim, x.ndim)
        elif x.ndim != len(first) or _without(x.shape, dim) != _without(first, dim):
            raise RuntimeError(
                f"cat(): sizes of tensors must match except in dimension {dim}, "
                f"got {list(first)} and {list(x.shape)} (tensor number {i})"
            )


def _without(shape, dim):
    return shape[:dim] + shape[dim + 1 :]


@numpy_names
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dim `dim`.

    Raises:
        RuntimeError: there are none, or the shapes differ.
    """
    tensors = _several(tensors, "stack")
    if not tensors:
        raise RuntimeError("stack(): expected a non-empty list of tensors")
    return _stack(*tensors, dim=dim)


@op(promote="common")
def _stack(*xs, dim):
    for i, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise RuntimeError(
                f"stack(): expects each tensor to be equal size, "
                f"got {list(xs[0].shape)} at entry 0 and {list(x.shape)} at entry {i}"
            )
    dim = canonical_dim(dim, xs[0].ndim + 1)
    return np.stack(xs, axis=dim), tuple([_slicer(dim, i) for i in range(len(xs))])


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side: along dim 1, or along dim 0 if they have one dim (or none)."""
    tensors = [reshape(x, 1) if x.ndim == 0 else x for x in _several(tensors, "hstack")]
    return cat(tensors, 0 if tensors and tensors[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors below each other: along dim 0, a 1-d tensor being one row."""
    return cat([reshape(x, 1, -1) if x.ndim < 2 else x for x in _several(tensors, "vstack")], 0)


def _several(tensors: Any, name: str) -> Sequence[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): expected a list or tuple of tensors, got {type(tensors).__name__}")
    for i, x in enumerate(tensors):
        require_tensor(x, f"element {i} of {name}")
    return tensors


# Several of one.


@numpy_names
def split(x: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along `dim` into pieces of this size (the last may be smaller), or of these sizes; views.

    Raises:
        RuntimeError: the sizes don't sum up to that of the dim, or one is negative; `x` is 0-d.
    """
    dim, size = _dim_and_size(x, dim, "split")
    sizes = as_sizes((split_size_or_sections,), "split")
    if isinstance(split_size_or_sections, Sequence):
        if sum(sizes) != size or any(n < 0 for n in sizes):
            raise RuntimeError(
                f"split(): expects sizes that are not negative and sum exactly to {size} "
                f"(the size of dimension {dim}), got {list(sizes)}"
            )
    else:
        sizes = _equal_sizes(size, sizes[0])
    return _split(x, sizes, dim)


def _equal_sizes(total, each):
    if each < 0 or (each == 0 and total):
        raise RuntimeError(f"split(): can't cut a dimension of size {total} into pieces of size {each}")
    if total == 0:
        return (0,)
    return (each,) * (total // each) + ((total % each,) if total % each else ())


@numpy_names
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along `dim` into at most `chunks` pieces, all but the last of one size; views."""
    dim, size = _dim_and_size(x, dim, "chunk")
    if chunks <= 0:
        raise RuntimeError(f"chunk(): expects `chunks` to be greater than 0, got {chunks}")
    return _split(x, (0,) * chunks if size == 0 else _equal_sizes(size, -(-size // chunks)), dim)


@numpy_names
def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along `dim` into so many pieces, as equal as can be, or at these indices; views."""
    dim, size = _dim_and_size(x, dim, "tensor_split")
    if isinstance(indices_or_sections, Sequence):
        bounds = (0, *as_sizes((indices_or_sections,), "tensor_split"), None)
        parts = [(slice(None),) * dim + (slice(a, b),) for a, b in zip(bounds, bounds[1:], strict=False)]
        return tuple([getitem(x, part) for part in parts])  # they may overlap
    count = as_sizes(indices_or_sections, "tensor_split")[0]
    if count <= 0:
        raise RuntimeError(f"tensor_split(): number of sections must be larger than 0, got {count}")
    return _split(x, tuple([size // count + (i < size % count) for i in range(count)]), dim)


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
        return np.concatenate(gs, axis=dim)

    return tuple(parts), vjp if parts else None


@numpy_names
@op(view=True, outputs=True)
def unbind(x, dim=0):
    """The slices of `x` along `dim`, without that dim; views.

    Raises:
        IndexError: there is no such dim.
    """
    if x.ndim == 0:
        raise IndexError(f"unbind(): there is no dimension {dim} in a 0-d tensor")
    dim = canonical_dim(dim, x.ndim)
    index, shape = (slice(None),) * dim, x.shape[:dim] + x.shape[dim + 1 :]

    def vjp(gs):
        some = next(g for g in gs if g is not None)
        return np.stack([np.zeros(shape, some.dtype, like=some) if g is None else g for g in gs], axis=dim)

    parts = tuple([x[(*index, i, ...)] for i in range(x.shape[dim])])
    return parts, vjp if parts else None
