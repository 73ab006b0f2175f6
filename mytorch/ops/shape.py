"""Shapes and the order of dims: the same elements seen differently. What can be a view is one."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tensor import Tensor
from .dims import canonical_dim, numpy_names
from .op import op, require_tensor

__all__ = [
    "reshape", "view", "reshape_as", "view_as", "flatten", "ravel", "unflatten", "squeeze", "unsqueeze",
    "transpose", "swapaxes", "swapdims", "t", "permute", "movedim", "moveaxis", "expand", "expand_as",
    "broadcast_to", "diagonal", "contiguous",
]  # fmt: skip


# Another shape.


@op(view=True)
def reshape(x, *sizes, shape=None):
    """The elements in another shape, `reshape(x, 2, -1)` or `reshape(x, (2, -1))`: a view if strides allow.

    Raises:
        RuntimeError: the shape doesn't have as many elements, or has more than one -1.
    """
    return _reshaped(x, _infer(as_sizes(sizes if shape is None else shape, "reshape"), x.size))


@op(view=True)
def view(x, *sizes):
    """As `reshape`, but always a view.

    Raises:
        RuntimeError: as for `reshape`; or no strides show the memory in this shape.
    """
    shape = _infer(as_sizes(sizes, "view"), x.size)
    y = x.reshape(shape)
    if x.size and not np.may_share_memory(x, y):
        steps = [s // x.itemsize for s in x.strides]
        raise RuntimeError(
            f"view size {list(shape)} is not compatible with size {list(x.shape)} and stride {steps} "
            "(at least one dimension spans across two contiguous subspaces); use reshape()"
        )
    before = x.shape
    return y, lambda g: g.reshape(before)


def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the shape of `other`."""
    return reshape(x, other.shape)


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` viewed in the shape of `other`."""
    return view(x, other.shape)


@op(view=True)
def flatten(x, start_dim=0, end_dim=-1):
    """The dims from `start_dim` to `end_dim` made one; a 0-d tensor gets one dim."""
    start, end = canonical_dim(start_dim, x.ndim), canonical_dim(end_dim, x.ndim)
    if start > end:
        raise RuntimeError(f"flatten(): start_dim {start_dim} can't come after end_dim {end_dim}")
    shape = x.shape
    return _reshaped(x, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


def ravel(x: Tensor) -> Tensor:
    """`x` with one dim."""
    return reshape(x, -1)


@op(view=True)
def unflatten(x, dim, sizes):
    """Dim `dim` split into dims of these sizes, one of which may be -1."""
    dim, before = canonical_dim(dim, x.ndim), x.shape
    if not before:
        raise RuntimeError(f"unflatten(): a 0-d tensor has no dim to split into {list(sizes)}")
    try:
        sizes = _infer(as_sizes((sizes,), "unflatten"), before[dim])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten(): sizes {list(sizes)} don't multiply up to the size of dim {dim} ({before[dim]})"
        ) from None
    return _reshaped(x, (*before[:dim], *sizes, *before[dim + 1 :]))


@numpy_names
@op(view=True)
def squeeze(x, dim=None):
    """Without the dims of size 1: all of them, or those among `dim` (an int or several)."""
    dims = range(x.ndim) if dim is None else dims_in_order(dim, x.ndim, "squeeze")
    return _reshaped(x, tuple([n for i, n in enumerate(x.shape) if n != 1 or i not in dims]))


@numpy_names
@op(view=True)
def unsqueeze(x, dim):
    """With a new dim of size 1 at `dim`."""
    dim = canonical_dim(dim, x.ndim + 1)
    return _reshaped(x, (*x.shape[:dim], 1, *x.shape[dim:]))


def _reshaped(x, shape):
    before = x.shape
    return x.reshape(shape), lambda g: g.reshape(before)


# Another order of the dims.


@op(view=True)
def transpose(x, dim0, dim1):
    """Dims `dim0` and `dim1` exchanged, a view."""
    a, b = canonical_dim(dim0, x.ndim), canonical_dim(dim1, x.ndim)
    return _exchanged(x, a, b), lambda g: _exchanged(g, a, b)


swapaxes = swapdims = transpose


def _exchanged(x, a, b):
    return x.swapaxes(a, b) if x.ndim else x


@op(view=True)
def t(x):
    """The transpose of a matrix; a vector or a number stays as it is."""
    if x.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but got {x.ndim}; use mT")
    return np.transpose(x), lambda g: np.transpose(g)


@op(view=True)
def permute(x, *sizes, dims=None):
    """The dims in another order: dim i of the result is dim `dims[i]` of `x`; a view."""
    dims = dims_in_order(as_sizes(sizes if dims is None else dims, "permute"), x.ndim, "permute")
    if len(dims) != x.ndim:
        raise RuntimeError(f"permute(): {len(dims)} dims {list(dims)} for a tensor with {x.ndim} dimensions")
    return _permuted(x, dims)


@op(view=True)
def movedim(x, source, destination):
    """Dims `source` (an int or several) moved to the places `destination`, the others in order; a view."""
    source = dims_in_order(source, x.ndim, "movedim")
    destination = dims_in_order(destination, x.ndim, "movedim")
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim(): there are as many source dims as destination dims, got {source} and {destination}"
        )
    order = [i for i in range(x.ndim) if i not in source]
    for to, dim in sorted(zip(destination, source, strict=True)):
        order.insert(to, dim)
    return _permuted(x, order if x.ndim else ())


moveaxis = movedim


def reverse_dims(x: Tensor) -> Tensor:
    """The dims in reverse order: `x.T`."""
    return permute(x, tuple(range(x.ndim))[::-1])


def matrix_transpose(x: Tensor) -> Tensor:
    """The last two dims exchanged: `x.mT`."""
    if x.ndim < 2:
        raise RuntimeError(f"mT needs a matrix or a batch of matrices, got a tensor with {x.ndim} dimensions")
    return transpose(x, -2, -1)


def _permuted(x, dims):
    back = [0] * len(dims)
    for i, d in enumerate(dims):
        back[d] = i
    return np.transpose(x, dims), lambda g: np.transpose(g, back)


# More elements than memory has, or fewer.


@op(view=True)
def expand(x, *sizes):
    """Dims of size 1 stretched, and new ones put in front, without copying; -1 keeps a dim.

    Raises:
        RuntimeError: a dim of another size than 1 would change.
    """
    return _expanded(x, as_sizes(sizes, "expand")), lambda g: g  # the engine sums over stretched dims


@op(view=True)
def broadcast_to(x, shape):
    """`x` expanded to `shape`."""
    return _expanded(x, as_sizes(shape, "broadcast_to")), lambda g: g


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` expanded to the shape of `other`."""
    return expand(x, other.shape)


def _expanded(x, sizes):
    new = len(sizes) - x.ndim
    if new < 0:
        raise RuntimeError(f"expand(): {len(sizes)} sizes {list(sizes)} for a tensor of {x.ndim} dimensions")
    before = (1,) * new + x.shape
    kept = [old if size == -1 else size for size, old in zip(sizes[new:], x.shape, strict=True)]
    shape = (*sizes[:new], *kept)
    for i, (size, old) in enumerate(zip(shape, before, strict=True)):
        if size < 0 or (size != old and old != 1):
            raise RuntimeError(
                f"the expanded size of the tensor ({size}) must match the existing size ({old}) at dimension "
                f"{i}; target sizes: {list(sizes)}, tensor sizes: {list(x.shape)}"
            )
    return _as_writable(np.broadcast_to(x, shape), x)


@op(view=True)
def diagonal(x, offset=0, dim1=0, dim2=1):
    """The diagonals of the matrices in `dim1` and `dim2`, as the last dim of a view.

    Args:
        offset: 0 for the main diagonal, above it if positive, below it if negative.
    """
    a, b = canonical_dim(dim1, x.ndim), canonical_dim(dim2, x.ndim)
    if a == b:
        raise RuntimeError(f"diagonal(): dim1 and dim2 can't be the same, got {dim1} and {dim2}")
    shape = x.shape

    def vjp(g):
        whole = np.zeros(shape, g.dtype, like=g)
        _as_writable(np.diagonal(whole, offset, a, b), whole)[...] = g
        return whole

    return _as_writable(np.diagonal(x, offset, a, b), x), vjp


def _as_writable(view, x):
    """NumPy marks such views read-only; here `check_writable` knows which of them can't be written."""
    if isinstance(view, np.ndarray):
        view.flags.writeable = x.flags.writeable
    return view


@op
def _contiguous(x):
    return x.copy(), lambda g: g  # in C order, unlike np.copy


def contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    """`x` itself if its elements lie in memory in order, else a copy of which that is true."""
    require_tensor(x, "contiguous")
    return x if x.is_contiguous() else _contiguous(x)


# Arguments.


def as_sizes(args: Any, name: str) -> tuple[int, ...]:
    """The ints in `(2, 3)` or `((2, 3),)`, or one int."""
    if not isinstance(args, Sequence):
        args = (args,)
    elif len(args) == 1 and isinstance(args[0], Sequence):
        args = args[0]
    try:
        return tuple([n if type(n) is int else operator.index(n) for n in args])
    except TypeError:
        raise TypeError(f"{name}(): expected ints, got {args!r}") from None


def dims_in_order(dims: Any, ndim: int, name: str) -> tuple[int, ...]:
    """The dims, one or several, in the order given, counted from the front.

    Raises:
        IndexError: there is no such dim.
        RuntimeError: one dim twice.
    """
    found = tuple([canonical_dim(d, ndim) for d in as_sizes((dims,), name)])
    if len(set(found)) != len(found):
        raise RuntimeError(f"{name}(): a dim appears multiple times in the list of dims {list(found)}")
    return found


def _infer(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """`sizes` with the -1 in it, if there is one, replaced by what makes `count` elements."""
    if -1 not in sizes:
        if math.prod(sizes) != count or (sizes and min(sizes) < 0):
            raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {count}")
        return sizes
    at = sizes.index(-1)
    others = math.prod(sizes[:at] + sizes[at + 1 :])
    if -1 in sizes[at + 1 :]:
        raise RuntimeError(f"only one dimension can be inferred, got shape {list(sizes)}")
    if others == 0 and count == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)}: -1 could be any number"
        )
    if others <= 0 or count % others:
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {count}")
    return (*sizes[:at], count // others, *sizes[at + 1 :])
