"""Gathers the elements that an index names, and scatters elements to them.

Each is the other's gradient, in two pairs of ops: `slice_at` and `slice_scatter` for an index that names no
element twice, `gather_nd` and `scatter_nd` for any, where `scatter_nd` adds the elements with equal indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..backends.device import RawArray, is_on_host
from ..backends.dtypes import is_half
from ..core.op import op

FULL = slice(None)

# What is summed in another dtype: for precision, and because a GPU can't add it atomically.
_SUM_DTYPES = {np.dtype(name): np.dtype("int32") for name in ("int8", "int16", "uint8", "uint16", "bool")}


@op(view=True)
def slice_at(x, index):
    """Returns x[index] for an index that names no element twice; a view if it has no arrays in it."""
    shape = x.shape
    return x[index], lambda g: slice_scatter.dual(g, index, shape)


@op(half=True)
def slice_scatter(g, index, shape):
    """Returns zeros of `shape` with `g` at `index`, which names no element twice."""
    whole = np.zeros(shape, g.dtype, like=g)
    whole[index] = g
    return whole, lambda gg: slice_at.dual(gg, index)


@op(half=True)
def gather_nd(x, *indices, dims):
    """Returns x[…, i, …, j, …] for arrays of integers at `dims`, as an embedding does."""
    shape = x.shape
    if len(dims) == 1:
        y = np.take(x, indices[0], axis=dims[0])
    else:
        position = [FULL] * len(shape)
        for dim, index in zip(dims, indices, strict=True):
            position[dim] = index
        y = x[tuple(position)]
    return y, lambda g: scatter_nd.dual(g, indices, dims, shape)


@op(half=True)
def scatter_nd(g, indices, dims, shape):
    """Returns zeros of `shape` with each element of `g` added where `gather_nd` would take it from."""
    return scatter_sum(g, indices, dims, shape), lambda gg: gather_nd.dual(gg, *indices, dims=dims)


def gather_nd_shape(
    indices: Sequence[RawArray], dims: Sequence[int], shape: Sequence[int]
) -> tuple[int, ...]:
    """Returns the shape of the result of `gather_nd`."""
    rest = [n for d, n in enumerate(shape) if d not in dims]
    start = _start(dims)
    try:
        return (*rest[:start], *np.broadcast_shapes(*[i.shape for i in indices]), *rest[start:])
    except ValueError as error:
        raise IndexError(f"indexing tensors could not be broadcast together: {error}") from None


def _start(dims: Sequence[int]) -> int:
    """Returns where NumPy puts the dims of the indices: in place, or in front if dims are between them."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def index_mask(indices: RawArray | tuple, shape: tuple[int, ...], like: RawArray) -> RawArray:
    """Returns a mask of `shape` that is True at the indices."""
    mask = np.zeros(shape, bool, like=like)
    mask[indices] = True
    return mask


def index_along_dim(index: RawArray, dim: int) -> tuple:
    """Returns the index for gathering along a dim: x[it][i, j, k] is x[i, index[i, j, k], k] for dim 1."""
    places = []
    for d, n in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[d] = n
        places.append(index if d == dim else np.arange(n, like=index).reshape(shape))
    return tuple(places)


def scatter_sum(
    g: RawArray, indices: Sequence[RawArray], dims: Sequence[int], shape: tuple[int, ...]
) -> RawArray:
    """Returns the adjoint of y = x[…, i, …, j, …]: zeros of `shape` with `g` added at these indices.

    Args:
        g: a raw array of the shape of y. The sum of a small dtype is returned in a larger one.
        indices: raw integer arrays that broadcast together.
        dims: the dims of x that they index, in order.
        shape: of x.
    """
    sizes = [shape[d] for d in dims]
    index = ravel_index(indices, sizes)
    start = _start(dims)
    if start:
        g = np.moveaxis(g, range(start, start + index.ndim), range(index.ndim))
    rest = g.shape[index.ndim :]
    rows = _sum_rows(g.reshape(index.size, math.prod(rest)), index.reshape(-1), math.prod(sizes))
    total = rows.reshape(*sizes, *rest)
    return np.moveaxis(total, range(len(dims)), dims) if dims[-1] >= len(dims) else total


def ravel_index(indices: Sequence[RawArray], sizes: Sequence[int]) -> RawArray:
    """Returns one index into the flattened dims instead of one a dim; negative ones count from the end."""
    total = None
    for index, size in zip(indices, sizes, strict=True):
        index = np.where(index < 0, index + size, index)
        total = index if total is None else total * size + index
    return total


def _sum_rows(rows: RawArray, index: RawArray, count: int) -> RawArray:
    """Returns `count` rows, row i the sum of the `rows[j]` with `index[j] == i`, on the CPU in order.

    Sorted by index, equal ones are adjacent and one pass sums them: many times faster than `np.add.at`,
    except for single numbers. A GPU adds atomically.
    """
    dtype = np.float32 if is_half(rows.dtype) else _SUM_DTYPES.get(rows.dtype)
    if dtype is not None:
        rows = rows.astype(dtype)
    total = np.zeros((count, rows.shape[1]), rows.dtype, like=rows)
    if not is_on_host(rows):
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
