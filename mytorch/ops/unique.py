"""The unique elements of a tensor, or its unique slices."""

from __future__ import annotations

import numpy as np

from ..core.op import op
from ..core.tensor import Tensor
from .dims import canonical_dim, numpy_names

__all__ = ["unique", "unique_consecutive"]


@numpy_names
def unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The unique elements in order, or along `dim` the unique slices; each NaN is one of its own.

    Args:
        sorted: they are always in order.
        return_inverse: also return the index of each element or slice among the unique ones.
        return_counts: also return the number of each of them.

    Returns:
        A tensor, or a tuple of it, the inverse and the counts (int64).

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: slices without elements.

    >>> mytorch.tensor([3, 1, 3]).unique(return_counts=True)
    (tensor([1 3]), tensor([1 2]))
    """
    outs = _unique(x, name="unique", dim=dim, ordered=True)
    return _requested(outs, return_inverse, return_counts)


@numpy_names
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal elements, or along `dim` of equal slices; arguments as for `unique`.

    >>> mytorch.tensor([1, 1, 2, 1]).unique_consecutive()
    tensor([1 2 1])
    """
    outs = _unique(x, name="unique_consecutive", dim=dim, ordered=False)
    return _requested(outs, return_inverse, return_counts)


def _requested(outs: tuple, inverse: bool, counts: bool) -> Tensor | tuple[Tensor, ...]:
    values, *rest = outs
    found = (values, *(x for x, wanted in zip(rest, (inverse, counts), strict=True) if wanted))
    return found if len(found) > 1 else values


@op(half="float16")
def _unique(x, *, name, dim, ordered):
    """(values, inverse, counts) of the rows that the elements are, or the slices along `dim`."""
    if dim is None:
        slices = np.reshape(x, -1)
    else:
        axis = canonical_dim(dim, x.ndim)
        if not x.ndim:
            raise IndexError(f"{name}(): dim is {dim}, but the tensor has no dimensions")
        slices = np.moveaxis(x, axis, 0)
        if 0 in slices.shape[1:]:
            raise RuntimeError(
                f"{name}(): slices of shape {slices.shape[1:]} along dim {dim} have no elements"
            )
    n = slices.shape[0]
    rows = np.reshape(slices, (n, -1)) if n else np.reshape(slices, (0, 1))
    position = np.arange(n, like=x)
    order = np.lexsort(np.flip(rows.T, 0)) if ordered and n else position
    rows = rows[order]
    fresh = np.concatenate([position[:1] == 0, np.any(rows[1:] != rows[:-1], axis=1)])
    inverse = np.zeros(n, np.int64, like=x)
    inverse[order] = np.cumsum(fresh) - 1
    starts = np.flatnonzero(fresh)
    counts = np.concatenate([starts[1:], np.full_like(starts, n, shape=1)]) - starts if n else starts
    values = slices[order[starts]]
    if dim is None:
        return (values, np.reshape(inverse, x.shape), counts), None
    return (np.moveaxis(values, 0, axis), inverse, counts), None
