"""Elements read from and sent to the places that an index names, perhaps more than once.

Reading and sending are each other's gradients, in two pairs of ops: `view_at` and `place` where no place is
named twice, `pick` and `pick_sum` where what meets in a place is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.dtypes import is_half
from ..core.op import op

FULL = slice(None)

# What is summed in another dtype: for precision, and because a GPU can't add it atomically.
_WIDER = {np.dtype(name): np.dtype("int32") for name in ("int8", "int16", "uint8", "uint16", "bool")}


@op(view=True)
def view_at(x, index):
    """x[index] for an index that names no place twice; a view if it has no arrays in it."""
    shape = x.shape
    return x[index], lambda g: place.dual(g, index, shape)


@op(half=True)
def place(g, index, shape):
    """Zeros of `shape` with `g` at `index`, which names no place twice."""
    whole = np.zeros(shape, g.dtype, like=g)
    whole[index] = g
    return whole, lambda gg: view_at.dual(gg, index)


@op(half=True)
def pick(x, *indices, dims):
    """x[…, i, …, j, …] for arrays of integers at `dims`: what an embedding does."""
    shape = x.shape
    if len(dims) == 1:
        y = np.take(x, indices[0], axis=dims[0])
    else:
        where = [FULL] * len(shape)
        for dim, index in zip(dims, indices, strict=True):
            where[dim] = index
        y = x[tuple(where)]
    return y, lambda g: pick_sum.dual(g, indices, dims, shape)


@op(half=True)
def pick_sum(g, indices, dims, shape):
    """Zeros of `shape` with each element of `g` added where `pick` would take it from."""
    return scatter_sum(g, indices, dims, shape), lambda gg: pick.dual(gg, *indices, dims=dims)


def picked_shape(indices: Sequence[Any], dims: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of what `pick` gives."""
    rest = [n for d, n in enumerate(shape) if d not in dims]
    start = _start(dims)
    try:
        return (*rest[:start], *np.broadcast_shapes(*[i.shape for i in indices]), *rest[start:])
    except ValueError as error:
        raise IndexError(f"indexing tensors could not be broadcast together: {error}") from None


def _start(dims: Sequence[int]) -> int:
    """Where NumPy puts the dims of the indices: in their place, or in front if dims lie between them."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def marked(places: Any, shape: tuple[int, ...], like: Any) -> Any:
    """A mask of `shape` that is True at the places."""
    mask = np.zeros(shape, bool, like=like)
    mask[places] = True
    return mask


def along(index: Any, dim: int) -> tuple:
    """What to index with, so that y[i, j, k] = x[i, index[i, j, k], k] is y = x[along(index, dim=1)]."""
    places = []
    for d, n in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[d] = n
        places.append(index if d == dim else np.arange(n, like=index).reshape(shape))
    return tuple(places)


def scatter_sum(g: Any, indices: Sequence[Any], dims: Sequence[int], shape: tuple[int, ...]) -> Any:
    """The reverse of y = x[…, i, …, j, …]: zeros of `shape` with each element of `g` added at its origin.

    Args:
        g: a raw array of the shape of y. The sum of a small dtype is returned in a wider one.
        indices: raw integer arrays that broadcast together.
        dims: the dims of x that they index, in order.
        shape: of x.
    """
    sizes = [shape[d] for d in dims]
    index = linear(indices, sizes)
    start = _start(dims)
    if start:
        g = np.moveaxis(g, range(start, start + index.ndim), range(index.ndim))
    rest = g.shape[index.ndim :]
    rows = _sum_rows(g.reshape(index.size, math.prod(rest)), index.reshape(-1), math.prod(sizes))
    total = rows.reshape(*sizes, *rest)
    return np.moveaxis(total, range(len(dims)), dims) if dims[-1] >= len(dims) else total


def linear(indices: Sequence[Any], sizes: Sequence[int]) -> Any:
    """One index into the flattened dims instead of one a dim; negative ones count from the end."""
    total = None
    for index, size in zip(indices, sizes, strict=True):
        index = np.where(index < 0, index + size, index)
        total = index if total is None else total * size + index
    return total


def _sum_rows(rows: Any, index: Any, count: int) -> Any:
    """`count` rows, the i-th one the sum of the `rows[j]` with `index[j] == i`; on the CPU in the order of j.

    Sorted by index, equal ones lie together and one pass sums them: many times faster than `np.add.at`,
    except for single numbers. A GPU adds atomically.
    """
    wider = np.float32 if is_half(rows.dtype) else _WIDER.get(rows.dtype)
    if wider is not None:
        rows = rows.astype(wider)
    total = np.zeros((count, rows.shape[1]), rows.dtype, like=rows)
    if not isinstance(rows, np.ndarray):
        bits = np.uint64 if rows.dtype == np.int64 else rows.dtype  # CuPy adds those only unsigned
        np.add.at(total.view(bits), index, rows.view(bits))
    elif rows.shape[1] == 1:
        np.add.at(total.reshape(-1), index, rows.reshape(-1))
    elif rows.size:
        keys = index.astype(np.uint16) if count <= 1 << 16 else index  # 16 bits are sorted by radix
        order = np.argsort(keys, kind="stable")
        ordered = index[order]
        firsts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        total[ordered[firsts]] = np.add.reduceat(rows[order], firsts, axis=0)
    return total
