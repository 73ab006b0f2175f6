"""Pooling: the maximum of each window over the last dims.

Tables hold the elements of each window, so that padding, dilation and windows of different sizes (adaptive
pooling) are one mechanism. The maximum is found dim by dim, with its index in the flattened last dims, where
the gradient is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...backends.device import RawArray
from ...backends.dtypes import is_floating_point
from ...core.op import op, require_tensor
from ...core.tensor import Tensor
from ...ops.dims import fixed_size
from ...ops.gather_scatter import scatter_nd, slice_scatter
from .pooling import check_shape, read_output_size, read_window, window_counts
from .resample import bin_index
from .types import IntOrInts


def max_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maximum of each window over the last dim, (N, C, L) or (C, L): see `max_pool2d`.

    >>> F.max_pool1d(mytorch.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[3.00000 2.00000]]])
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maximum of each window over the last two dims, (N, C, H, W) or (C, H, W), or NaN.

    Args:
        kernel_size: elements of a window; one int or one per dim, as the next three.
        stride: from window to window; `kernel_size` by default.
        padding: how far windows exceed both ends, with values of -inf.
        dilation: from element to element of a window.
        ceil_mode: the last window may exceed the end further.
        return_indices: also return the maxima's int64 indices in the flattened last dims.

    Raises:
        NotImplementedError: the dtype is bool (for one dim, not floating-point).
        RuntimeError: an invalid shape, size or padding.

    >>> F.max_pool2d(mytorch.ones(1, 3, 8, 8), 2).shape
    Size([1, 3, 4, 4])
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    dilation: IntOrInts = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maximum of each window over the last three dims, with or without N: see `max_pool2d`.

    >>> F.max_pool3d(mytorch.ones(1, 3, 8, 8, 8), 2).shape
    Size([1, 3, 4, 4, 4])
    """
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def adaptive_max_pool1d(
    input: Tensor, output_size: IntOrInts, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maximum of each of `output_size` windows over the last dim: see `adaptive_max_pool2d`.

    >>> F.adaptive_max_pool1d(mytorch.ones(1, 3, 8), 2).shape
    Size([1, 3, 2])
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: Tensor, output_size: IntOrInts, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maximum of each of H' × W' windows over the last two dims, as in `adaptive_avg_pool2d`.

    Args:
        output_size: (H', W') or an int for both; None preserves a dim.
        return_indices: see `max_pool2d`.

    Raises:
        NotImplementedError: the dtype is not floating-point.
        RuntimeError, TypeError, ValueError: an invalid shape or size.

    >>> F.adaptive_max_pool2d(mytorch.ones(1, 3, 8, 8), 1).shape
    Size([1, 3, 1, 1])
    """
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(
    input: Tensor, output_size: IntOrInts, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maxima of D' × H' × W' windows over the last three dims: see `adaptive_max_pool2d`.

    >>> F.adaptive_max_pool3d(mytorch.ones(1, 3, 8, 8, 8), 1).shape
    Size([1, 3, 1, 1, 1])
    """
    return _adaptive_max_pool(3, input, output_size, return_indices)


def _max_pool(dims, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    name = f"max_pool{dims}d"
    require_tensor(input, name)
    window = read_window(name, dims, kernel_size, stride, padding, dilation)
    counts = window_counts(name, input.shape, *window, ceil_mode)
    if input.dtype == bool or (dims == 1 and not is_floating_point(input.dtype)):
        raise NotImplementedError(f"{name}(): not implemented for {input.dtype} tensors")
    tables = tuple(map(_window_index, input.shape[-dims:], counts, *window))
    return _maximum(input, tables=tables) if return_indices else _maximum(input, tables=tables)[0]


def _window_index(n, count, kernel, stride, padding, dilation):
    """Returns the elements of each window, (count, kernel); nearest ones replace those outside."""
    sizes = n, count, kernel, stride, padding, dilation
    n, count, kernel, stride, padding, dilation = map(fixed_size, sizes)
    start = np.arange(count)[:, None] * stride - padding
    first, last = -(np.minimum(start, 0) // dilation), (n - 1 - start) // dilation
    return start + dilation * np.clip(np.arange(kernel), first, last)


def _adaptive_max_pool(dims, input, output_size, return_indices):
    name = f"adaptive_max_pool{dims}d"
    require_tensor(input, name)
    counts = read_output_size(name, dims, input.shape, output_size)
    check_shape(name, dims, input.shape, input.shape[-dims - 1 :])
    if not is_floating_point(input.dtype):
        raise NotImplementedError(f"{name}(): not implemented for {input.dtype} tensors")
    tables = tuple(map(bin_index, input.shape[-dims:], counts))
    return _maximum(input, tables=tables) if return_indices else _maximum(input, tables=tables)[0]


@op(half="float16")
def _maximum(x, *, tables):
    """Returns (maxima, their indices in the flattened last dims).

    tables: for each of these dims the elements of each window, (windows, elements).
    """
    y, index = _find_maxima(x, tables)
    shape, dims, size = x.shape, len(tables), math.prod(x.shape)
    lead, inside = shape[: x.ndim - dims], shape[x.ndim - dims :]
    first = np.arange(math.prod(lead), like=x).astype(np.int64) * math.prod(inside)
    flat = np.reshape(index + np.reshape(first, (*lead, *[1] * dims)), -1)
    disjoint = all([np.all(table[1:, 0] > table[:-1, -1]) for table in tables])

    def vjp(g):
        g = np.reshape(g, -1)
        dx = slice_scatter.dual(g, flat, (size,)) if disjoint else scatter_nd.dual(g, (flat,), (0,), (size,))
        return np.reshape(dx, shape)

    return (y, index), vjp


def _find_maxima(x: RawArray, tables: Sequence[np.ndarray]) -> tuple[RawArray, RawArray]:
    """Returns the maxima and their indices: the first of equal maxima, the last of several NaN."""
    indices, step = np.zeros((1,) * x.ndim, np.int64, like=x), 1
    for axis, table in zip(range(x.ndim - 1, -1, -1), reversed(tables), strict=False):
        n, best, index = x.shape[axis], None, None
        for column in table.T:
            value = _column(x, column, axis)
            offset = np.reshape(np.asarray(column * step, like=x), (-1, *[1] * (x.ndim - 1 - axis)))
            candidate = offset + (_column(indices, column, axis) if indices.shape[axis] > 1 else indices)
            if best is None:
                best, index = np.copy(value), np.copy(np.broadcast_to(candidate, value.shape))
            else:
                larger = np.greater(value, best) | np.not_equal(value, value)
                best = np.where(larger, value, best)
                index = np.where(larger, candidate, index)
        x, indices, step = best, index, step * n
    return x, indices


def _column(x: RawArray, index: np.ndarray, axis: int) -> RawArray:
    """Returns x[…, index, …] at `axis`; a view if the index increases in equal steps."""
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    if len(index) and step > 0 and np.all(np.diff(index) == step):
        return x[(*[slice(None)] * axis, slice(int(index[0]), int(index[-1]) + 1, step))]
    return np.take(x, np.asarray(index, like=x), axis=axis)
