"""Shapes and the order of dims; views where strides allow."""

from __future__ import annotations

import math

import numpy as np

from ..backends import dtypes
from ..backends.device import device_of
from ..backends.sliding_window import sliding_window_view
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .dims import as_sizes, canonical_dim, dims_in_order, numpy_names
from .gather_scatter import FULL, scatter_nd
from .memory_formats import check_format

__all__ = [
    "reshape", "view", "reshape_as", "view_as", "flatten", "ravel", "unflatten", "squeeze", "unsqueeze",
    "transpose", "swapaxes", "swapdims", "t", "permute", "movedim", "moveaxis", "contiguous",
]


# Another shape.


@op(view=True)
def reshape(x, *sizes, shape=None):
    """The elements in another shape, `reshape(x, 2, -1)` or `reshape(x, (2, -1))`: a view if strides allow.

    Raises:
        RuntimeError: the shape doesn't have as many elements, or has more than one -1.

    >>> mytorch.arange(6).reshape(2, -1)
    tensor([[0 1 2]
            [3 4 5]])
    """
    return _reshaped(x, _infer(as_sizes(sizes if shape is None else shape, "reshape"), math.prod(x.shape)))


@op(view=True)
def view(x, *sizes, size=None, dtype=None):
    """As `reshape`, but always a view; `view(x, dtype)` reads the same memory as another dtype.

    Raises:
        RuntimeError: as for `reshape`; or no strides show the memory in this shape, or as this dtype.

    >>> x = mytorch.arange(4)
    >>> x.view(2, 2)[0, 0] = 9
    >>> x
    tensor([9 1 2 3])
    """
    if dtype is not None or (len(sizes) == 1 and isinstance(sizes[0], (np.dtype, str, type))):
        return _bits(x, dtypes.as_dtype(sizes[0] if dtype is None else dtype)), None
    shape = _infer(as_sizes(sizes if size is None else size, "view"), math.prod(x.shape))
    y, vjp = _reshaped(x, shape)
    if x.size and not np.may_share_memory(x, y):
        steps = [s // x.itemsize for s in x.strides]
        raise RuntimeError(
            f"view size {list(shape)} is not compatible with size {list(x.shape)} and stride {steps} "
            "(at least one dimension spans across two contiguous subspaces); use reshape()"
        )
    return y, vjp


def _bits(x, dtype):
    old, new, last = x.itemsize, dtype.itemsize, x.shape[-1] if x.ndim else 1
    if old != new and (x.ndim == 0 or x.strides[-1] != old or last * old % new):
        shape = f"{x.dtype} of shape {list(x.shape)}"
        raise RuntimeError(
            f"view(): {shape} can't be read as {dtype}: a last dim must be dense, and whole {new} bytes"
        )
    return x.view(dtype)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """The input in the shape of `other`.

    >>> mytorch.arange(4).reshape_as(mytorch.ones(2, 2)).shape
    Size([2, 2])
    """
    return reshape(input, other.shape)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """The input viewed in the shape of `other`.

    >>> mytorch.arange(4).view_as(mytorch.ones(2, 2)).shape
    Size([2, 2])
    """
    return view(input, other.shape)


@op(view=True)
def flatten(x, start_dim=0, end_dim=-1):
    """The dims from `start_dim` to `end_dim` made one; a 0-d tensor gets one dim.

    >>> mytorch.ones(2, 3, 4).flatten(1).shape
    Size([2, 12])
    """
    start, end = canonical_dim(start_dim, x.ndim), canonical_dim(end_dim, x.ndim)
    if start > end:
        raise RuntimeError(f"flatten(): start_dim {start_dim} can't come after end_dim {end_dim}")
    shape = x.shape
    return _reshaped(x, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """The input with one dim.

    >>> mytorch.ones(2, 3).ravel().shape
    Size([6])
    """
    return reshape(input, -1)


@op(view=True)
def unflatten(x, dim, sizes):
    """Dim `dim` split into dims of these sizes, one of which may be -1.

    >>> mytorch.ones(2, 12).unflatten(1, (3, 4)).shape
    Size([2, 3, 4])
    """
    dim, before, sizes = canonical_dim(dim, x.ndim), x.shape, as_sizes((sizes,), "unflatten")
    if not before or not sizes:
        raise RuntimeError(f"unflatten(): can't split dim {dim} of shape {list(before)} into {list(sizes)}")
    try:
        sizes = _infer(sizes, before[dim])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten(): sizes {list(sizes)} don't multiply up to the size of dim {dim} ({before[dim]})"
        ) from None
    return _reshaped(x, (*before[:dim], *sizes, *before[dim + 1 :]))


@numpy_names
@op(view=True)
def squeeze(x, *dims, dim=None):
    """Without the dims of size 1: all of them, or those among `dims` (also in a tuple).

    >>> mytorch.ones(2, 1, 3).squeeze(1).shape
    Size([2, 3])
    """
    dims = dims if dim is None else (dim,)
    if dims in ((), (None,)):
        dims = range(x.ndim)
    else:
        dims = dims_in_order(as_sizes(dims, "squeeze"), x.ndim, "squeeze")
    return _reshaped(x, tuple([n for i, n in enumerate(x.shape) if n != 1 or i not in dims]))


@numpy_names
@op(view=True)
def unsqueeze(x, dim):
    """With a new dim of size 1 at `dim`.

    >>> mytorch.ones(2, 3).unsqueeze(1).shape
    Size([2, 1, 3])
    """
    dim = canonical_dim(dim, x.ndim + 1)
    return _reshaped(x, (*x.shape[:dim], 1, *x.shape[dim:]))


def _reshaped(x, shape):
    before = x.shape
    return x.reshape(shape), lambda g: g.reshape(before)


# Another order of the dims.


@op(view=True)
def transpose(x, dim0, dim1=None):
    """Dims `dim0` and `dim1` exchanged, a view; all dims in the order of a tuple `dim0`, as NumPy has it.

    Raises:
        TypeError: one dim.
        IndexError: a dim is out of range.

    >>> mytorch.ones(2, 3, 4).transpose(0, 2).shape
    Size([4, 3, 2])
    """
    if dim1 is None:
        if not isinstance(dim0, (tuple, list)):
            raise TypeError(f"transpose(): expected two dims, or all of them in a tuple, got {dim0!r}")
        return permute.forward(x, dim0)
    a, b = canonical_dim(dim0, x.ndim), canonical_dim(dim1, x.ndim)
    return _swapaxes(x, a, b), lambda g: _swapaxes(g, a, b)


swapaxes = swapdims = transpose


def _swapaxes(x, a, b):
    return x.swapaxes(a, b) if x.ndim else x


@op(view=True)
def t(x):
    """The transpose of a matrix; a vector or a number stays as it is.

    >>> mytorch.ones(2, 3).t().shape
    Size([3, 2])
    """
    if x.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but got {x.ndim}; use mT")
    return np.transpose(x), lambda g: np.transpose(g)


@op(view=True)
def permute(x, *sizes, dims=None):
    """The dims in another order: dim i of the result is dim `dims[i]` of `x`; a view.

    >>> mytorch.ones(2, 3, 4).permute(2, 0, 1).shape
    Size([4, 2, 3])
    """
    dims = as_sizes(sizes if dims is None else dims, "permute")
    if len(dims) != x.ndim:
        raise RuntimeError(f"permute(): {len(dims)} dims {list(dims)} for a tensor with {x.ndim} dimensions")
    return _permute(x, dims_in_order(dims, x.ndim, "permute"))


@op(view=True)
def movedim(x, source, destination):
    """Dims `source` (an int or several) moved to the places `destination`, the others in order; a view.

    >>> mytorch.ones(2, 3, 4).movedim(0, -1).shape
    Size([3, 4, 2])
    """
    source, destination = as_sizes((source,), "movedim"), as_sizes((destination,), "movedim")
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim(): there are as many source dims as destination dims, got {source} and {destination}"
        )
    source, destination = (dims_in_order(dims, x.ndim, "movedim") for dims in (source, destination))
    order = [i for i in range(x.ndim) if i not in source]
    for to, dim in sorted(zip(destination, source, strict=True)):
        order.insert(to, dim)
    return _permute(x, order if x.ndim else ())


moveaxis = movedim


def reverse_dims(x: Tensor) -> Tensor:
    """The dims in reverse order: `x.T`."""
    return permute(x, tuple(range(x.ndim))[::-1])


def matrix_transpose(x: Tensor) -> Tensor:
    """The last two dims exchanged: `x.mT`."""
    if x.ndim < 2:
        raise RuntimeError(f"mT needs a matrix or a batch of matrices, got a tensor with {x.ndim} dimensions")
    return transpose(x, -2, -1)


def _permute(x, dims):
    back = [0] * len(dims)
    for i, d in enumerate(dims):
        back[d] = i
    return np.transpose(x, dims), lambda g: np.transpose(g, back)


# Windows.


@op(view=True)
def unfold(x, dimension, size, step):
    """All windows of `size` neighbours along a dim, `step` apart, as a view with a last dim for the windows.

    Shape: (…, n, …) -> (…, (n - size) // step + 1, …, size)

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: `size` is negative or larger than the dim, or `step` isn't positive.

    >>> mytorch.arange(5).unfold(0, 3, 2)
    tensor([[0 1 2]
            [2 3 4]])
    """
    axis, shape = canonical_dim(dimension, x.ndim), x.shape
    n = shape[axis] if shape else 1
    if not 0 <= size <= n:
        raise RuntimeError(f"unfold(): size must be from 0 to {n}, the size of dimension {axis}, got {size}")
    if step <= 0:
        raise RuntimeError(f"unfold(): step is {step} but must be > 0")
    if not shape:
        return x.reshape(1)[:size], lambda g: np.sum(g)
    count = (n - size) // step + 1
    index = np.arange(count, like=x)[:, None] * step + np.arange(size, like=x)

    def vjp(g):
        return scatter_nd.dual(np.moveaxis(g, -1, axis + 1), (index,), (axis,), shape)

    return _windows(x, axis, count, size, step), vjp


def _windows(x, axis, count, size, step):
    if size == 0:
        return np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], 0), x.dtype, like=x)
    windows = sliding_window_view(x, (size,), (axis,), writeable=True)
    return windows[(*(FULL,) * axis, slice(None, None, step))]


@op(half=True)
def _contiguous(x):
    return x.copy(), lambda g: g  # in C order, unlike np.copy


def contiguous(input: Tensor, memory_format: object = None) -> Tensor:
    """The input itself if its elements lie in memory in order, else a copy of which that is true.

    Args:
        memory_format: checked; the result is in row-major order.

    >>> mytorch.ones(2, 3).T.contiguous().is_contiguous()
    True
    """
    require_tensor(input, "contiguous")
    check_format(memory_format, input.ndim, "contiguous")
    return input if input.is_contiguous() else _contiguous(input)


# Raw views.


def as_writable(view, x):
    """NumPy marks such views read-only; here `check_writable` knows which of them can't be written."""
    return device_of(x).kind.as_writable(view, x)


def _infer(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """`sizes` with the -1 in it, if there is one, replaced by what makes `count` elements."""
    if -1 not in sizes:
        if math.prod(sizes) != count or any([n < 0 for n in sizes]):
            raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {count}")
        return sizes
    others = -math.prod(sizes)
    if sizes.count(-1) > 1:
        raise RuntimeError(f"only one dimension can be inferred, got shape {list(sizes)}")
    if others == 0 and count == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)}: -1 could be any number"
        )
    if others <= 0 or count % others:
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {count}")
    missing = sizes.index(-1)
    return (*sizes[:missing], count // others, *sizes[missing + 1 :])
