"""Copies with the elements rearranged: repeated, flipped, rotated, rolled; and differences of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backends.device import is_raw
from ..core.array import Array
from ..core.op import index_of, op, require_tensor
from ..core.tensor import Tensor
from .bounds import require_all
from .cast import clone
from .compare import logical_xor
from .dims import as_sizes, canonical_dim, dims_in_order, numpy_names
from .elementwise import sub
from .gather_scatter import FULL, gather_nd
from .index import getitem
from .join import cat
from .reduce import total
from .shape import reshape, transpose

__all__ = [
    "repeat", "tile", "repeat_interleave", "flip", "fliplr", "flipud", "rot90", "roll", "diff",
]


@op(half="float16")
def repeat(x, *sizes, repeats=None):
    """Dim i repeated `sizes[i]` times, as by NumPy's `tile`; more sizes than dims make new leading dims.

    >>> mytorch.tensor([1, 2]).repeat(2, 2)
    tensor([[1 2 1 2]
            [1 2 1 2]])
    """
    counts = as_sizes(sizes if repeats is None else repeats, "repeat")
    if len(counts) < x.ndim:
        raise RuntimeError(f"repeat(): {len(counts)} counts {list(counts)} for a {x.ndim}-d tensor")
    return _tile(x, counts)


@op(half="float16")
def tile(input, *sizes, dims=None):
    """As `repeat`, but counts may be missing in front: these dims stay.

    >>> mytorch.tensor([1, 2]).tile(2)
    tensor([1 2 1 2])
    """
    counts = as_sizes(sizes if dims is None else dims, "tile")
    return _tile(input, (1,) * (input.ndim - len(counts)) + counts)


def _tile(x, counts):
    if any(n < 0 for n in counts):
        raise RuntimeError(f"repeat(): a count can't be negative, got {list(counts)}")
    before = (1,) * (len(counts) - x.ndim) + x.shape
    apart = [n for pair in zip(counts, before, strict=True) for n in pair]
    copies = tuple(range(0, len(apart), 2))
    return np.tile(x, counts), lambda g: total(g.reshape(apart), copies)


@numpy_names
def repeat_interleave(
    input: Tensor, repeats: Tensor | int | Sequence[int] | None = None, dim: int | None = None, *,
    output_size: int | None = None,
) -> Tensor:
    """Each slice of `input` along `dim` (None: each element) repeated next to itself, `repeats` times.

    Args:
        repeats: a number for all, or integers, one a slice. Without it, `input` holds the integers, and the
            result is the index of each copy's origin.
        output_size: the sum of the repeats, which saves a GPU from waiting for it.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: repeats are negative, not as many as slices, or don't sum to `output_size`.
        NotImplementedError: repeats are no integers.

    >>> mytorch.tensor([1, 2]).repeat_interleave(2)
    tensor([1 1 2 2])
    """
    require_tensor(input, "repeat_interleave")
    if repeats is None:
        return _source_indices(input, output_size)
    input, dim = (reshape(input, -1), 0) if dim is None else (input, canonical_dim(dim, input.ndim))
    if isinstance(repeats, (list, tuple)) or is_raw(repeats):
        repeats = Tensor(Array(repeats, device=input.device))
    if isinstance(repeats, (Tensor, Array)) and repeats.numel() != 1:
        if repeats.shape != (input.shape[dim],):
            wanted = f"{input.shape[dim]} slices along dim {dim}"
            raise RuntimeError(f"repeat_interleave(): repeats of shape {list(repeats.shape)} for {wanted}")
        return gather_nd(input, _source_indices(repeats, output_size), dims=(dim,))
    return _repeat_each(input, index_of(repeats), dim)


@op
def _source_indices(repeats, total):
    if repeats.dtype.name not in ("int64", "int32"):
        raise NotImplementedError(f"repeat_interleave(): repeats must be int64 or int32, got {repeats.dtype}")
    if repeats.ndim != 1:
        raise RuntimeError(f"repeat_interleave(): repeats must be a vector, got shape {list(repeats.shape)}")
    waits = total is None  # else a GPU needn't be waited for
    text = "repeat_interleave(): repeats must not be negative"
    require_all(repeats >= 0, text, found=lambda: repeats, waits=waits)
    ends = np.cumsum(repeats)
    if not waits:
        text = f"repeat_interleave(): output_size is {total}, the repeats have another sum"
        sums = ends[-1:].sum(keepdims=True)
        require_all(np.equal(sums, total), text, found=lambda: sums[0], waits=False)
    needed = int(ends[-1:].sum()) if waits else total
    origins = np.searchsorted(ends, np.arange(needed, like=repeats), side="right")
    return origins.astype(repeats.dtype, copy=False), None


@op(half="float16")
def _repeat_each(x, repeats, dim):
    if repeats < 0 or not x.ndim:
        raise RuntimeError(f"repeat_interleave(): {repeats} repeats of a tensor with shape {list(x.shape)}")
    apart = (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :])
    return np.repeat(x, repeats, axis=dim), lambda g: total(g.reshape(apart), (dim + 1,))


@op(half="float16")
def flip(x, *sizes, dims=None):
    """The order of the elements along `dims` reversed, a copy.

    >>> mytorch.tensor([[1, 2], [3, 4]]).flip(1)
    tensor([[2 1]
            [4 3]])
    """
    dims = dims_in_order(as_sizes(sizes if dims is None else dims, "flip"), x.ndim, "flip")[: x.ndim]
    if not dims:
        return x.copy(), lambda g: g
    return np.flip(x, dims).copy(), lambda g: np.flip(g, dims)


def fliplr(input: Tensor) -> Tensor:
    """Dim 1 reversed.

    >>> mytorch.tensor([[1, 2], [3, 4]]).fliplr()
    tensor([[2 1]
            [4 3]])
    """
    _require_dims("fliplr", input, 2)
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Dim 0 reversed.

    >>> mytorch.tensor([[1, 2], [3, 4]]).flipud()
    tensor([[3 4]
            [1 2]])
    """
    _require_dims("flipud", input, 1)
    return flip(input, 0)


def _require_dims(name: str, x: Tensor, count: int) -> None:
    require_tensor(x, name)
    if x.ndim < count:
        raise RuntimeError(f"{name}(): input must be >= {count}-d, got shape {list(x.shape)}")


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotates by 90 degrees, `k` times, in the plane of two dims, from the first to the second; a copy.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: not two different dims, or the input has fewer.

    >>> mytorch.tensor([[1, 2], [3, 4]]).rot90()
    tensor([[2 4]
            [1 3]])
    """
    require_tensor(input, "rot90")
    dims = as_sizes((dims,), "rot90")
    if len(dims) != 2 or input.ndim < 2:
        raise RuntimeError(f"rot90(): expected two dims of a tensor with as many, got {dims} of {input.ndim}")
    a, b = canonical_dim(dims[0], input.ndim), canonical_dim(dims[1], input.ndim)
    if a == b:
        raise RuntimeError(f"rot90(): expected rotation dims to be different, got {dims[0]} and {dims[1]}")
    if k % 4 == 2:
        return flip(input, a, b)
    if k % 4 == 1:
        return transpose(flip(input, b), a, b)
    return transpose(flip(input, a), a, b) if k % 4 == 3 else flip(input, ())


@op(half="float16")
def roll(x, shifts, dims=None):
    """Elements moved by `shifts` along `dims` (None: flattened), and from one end to the other.

    >>> mytorch.arange(4).roll(1)
    tensor([3 0 1 2])
    """
    shifts = as_sizes((shifts,), "roll")
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        if len(shifts) != 1:
            raise RuntimeError(f"roll(): several shifts {list(shifts)} need as many dims, got none")
        by, axes = shifts[0], None
    else:
        dims = as_sizes((dims,), "roll")
        if len(dims) != len(shifts):
            raise RuntimeError(f"roll(): shifts {list(shifts)} and dims {list(dims)} differ in length")
        by, axes = shifts, tuple(canonical_dim(d, x.ndim) for d in dims)
    back = tuple(-s for s in by) if axes is not None else -by
    return np.roll(x, by, axes), lambda g: np.roll(g, back, axes)


@numpy_names
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences x[i + 1] - x[i] along `dim`, `n` times over; of bools, whether they differ.

    Args:
        prepend, append: put before and after the input along `dim` first; in its other dims equal to it.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: `n` is negative; the input is 0-d; the shapes don't fit.

    >>> mytorch.tensor([1, 3, 6]).diff()
    tensor([2 3])
    """
    _require_dims("diff", input, 1)
    n, dim = index_of(n), canonical_dim(dim, input.ndim)
    if n < 0:
        raise RuntimeError(f"diff(): order n must not be negative, got {n}")
    for x in (prepend, append):
        if x is not None and x.ndim != input.ndim:
            raise RuntimeError(f"diff(): can't put a tensor of {x.ndim} dims beside an input of {input.ndim}")
    if n == 0:
        return clone(input)
    parts = [x for x in (prepend, input, append) if x is not None]
    x = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[dim])):
        step = logical_xor if x.dtype == np.bool else sub
        before, after = ((*(FULL,) * dim, part) for part in (slice(None, -1), slice(1, None)))
        x = step(getitem(x, after), getitem(x, before))
    return x
