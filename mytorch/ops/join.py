"""Concatenates and stacks tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backends.device import join
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .dims import canonical_dim, numpy_names
from .shape import reshape, unsqueeze

__all__ = [
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "row_stack", "dstack", "column_stack",
    "atleast_1d", "atleast_2d", "atleast_3d",
]


@numpy_names
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`, equal in their other dims; 1-d ones of size 0 add nothing.

    Raises:
        ValueError: the list is empty.
        RuntimeError: the shapes don't fit.

    >>> mytorch.cat([mytorch.zeros(1, 2), mytorch.ones(2, 2)])
    tensor([[0.00000 0.00000]
            [1.00000 1.00000]
            [1.00000 1.00000]])
    """
    tensors = _require_list(tensors, "cat")
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of tensors")
    return _cat(*tensors, dim=dim)


concat = concatenate = cat


@op(promote="common", half=True)
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
    return join(joined, dim), tuple(vjps)


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
        RuntimeError: the list is empty, or the shapes differ.

    >>> mytorch.stack([mytorch.zeros(2), mytorch.ones(2)], dim=1)
    tensor([[0.00000 1.00000]
            [0.00000 1.00000]])
    """
    tensors = _require_list(tensors, "stack")
    if not tensors:
        raise RuntimeError("stack(): expected a non-empty list of tensors")
    return _stack(*tensors, dim=dim)


@op(promote="common", half=True)
def _stack(*xs, dim):
    for i, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise RuntimeError(
                f"stack(): expects each tensor to be equal size, "
                f"got {list(xs[0].shape)} at entry 0 and {list(x.shape)} at entry {i}"
            )
    dim = canonical_dim(dim, xs[0].ndim + 1)
    return join([np.expand_dims(x, dim) for x in xs], dim), tuple([_slicer(dim, i) for i in range(len(xs))])


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side: along dim 1, or along dim 0 if they have one dim (or none).

    >>> mytorch.hstack([mytorch.tensor([1]), mytorch.tensor([2, 3])])
    tensor([1 2 3])
    """
    tensors = atleast_1d(_not_empty(tensors, "hstack"))
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors below each other: along dim 0, a 1-d tensor being one row.

    >>> mytorch.vstack([mytorch.tensor([1, 2]), mytorch.tensor([3, 4])])
    tensor([[1 2]
            [3 4]])
    """
    return cat(atleast_2d(_not_empty(tensors, "vstack")), 0)


row_stack = vstack


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors behind each other, along dim 2, after `atleast_3d`.

    >>> mytorch.dstack([mytorch.ones(2), mytorch.zeros(2)]).shape
    Size([1, 2, 2])
    """
    return cat(atleast_3d(_not_empty(tensors, "dstack")), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side, along dim 1, a 0-d or 1-d tensor being one column.

    >>> mytorch.column_stack([mytorch.tensor([1, 2]), mytorch.tensor([3, 4])])
    tensor([[1 3]
            [2 4]])
    """
    tensors = _not_empty(tensors, "column_stack")
    return cat([reshape(x, -1, 1) if x.ndim < 2 else x for x in tensors], 1)


def _not_empty(tensors: object, name: str) -> Sequence[Tensor]:
    tensors = _require_list(tensors, name)
    if not tensors:
        raise RuntimeError(f"{name}(): expected a non-empty list of tensors")
    return tensors


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """0-d tensors with one dim, others as they are; of several tensors, or a list, a tuple.

    >>> mytorch.atleast_1d(mytorch.tensor(1))
    tensor([1])
    """
    return _each(tensors, "atleast_1d", lambda x: x if x.ndim else reshape(x, 1))


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """As `atleast_1d`, with at least two dims: a vector becomes a row.

    >>> mytorch.atleast_2d(mytorch.tensor([1, 2]))
    tensor([[1 2]])
    """
    return _each(tensors, "atleast_2d", lambda x: x if x.ndim > 1 else reshape(x, 1, -1))


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """As `atleast_1d`, with at least three dims: behind a matrix, on both sides of a vector.

    >>> mytorch.atleast_3d(mytorch.tensor([1, 2])).shape
    Size([1, 2, 1])
    """
    return _each(
        tensors, "atleast_3d",
        lambda x: x if x.ndim > 2 else unsqueeze(x, -1) if x.ndim == 2 else reshape(x, 1, -1, 1),
    )


def _each(tensors: tuple, name: str, function: Callable) -> Tensor | tuple[Tensor, ...]:
    if len(tensors) == 1 and not isinstance(tensors[0], (list, tuple)):
        require_tensor(tensors[0], name)
        return function(tensors[0])
    tensors = tensors[0] if len(tensors) == 1 else tensors
    return tuple([function(x) for x in _require_list(tensors, name)])


def _require_list(tensors: object, name: str) -> Sequence[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): expected a list or tuple of tensors, got {type(tensors).__name__}")
    for i, x in enumerate(tensors):
        require_tensor(x, f"element {i} of {name}")
    return tensors
