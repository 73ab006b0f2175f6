"""Pooling: the maximum of each window over the last dims.

Tables say which elements are in which window, so that padding, dilation and windows of several sizes
("adaptive" ones) are one mechanism. A maximum is looked for in one dim after the other, by its number among
the elements of these dims; the gradient goes to the element of this number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.dtypes import is_floating_point
from ...core.op import op, require_tensor
from ...core.tensor import Tensor
from ...ops.gather_scatter import scatter_nd, slice_scatter
from .pooling import check_shape, read_output_size, read_window, window_counts
from .resample import bin_index


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The maximum of each window over the last dim, (N, C, L) or (C, L): see `max_pool2d`."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The maximum of each window over the last two dims, (N, C, H, W) or (C, H, W); NaN is the largest.

    Args:
        kernel_size: elements of a window; an int or one for each dim, as all below.
        stride: from window to window; `kernel_size` by default.
        padding: how far windows reach over both ends; nothing there is a maximum.
        dilation: from element to element of a window.
        ceil_mode: a last window may reach further over the end.
        return_indices: return also where the maxima are: int64 numbers in the flattened last dims.

    Raises:
        NotImplementedError: the dtype is bool (or, for one dim, no floating-point one).
        RuntimeError: a shape, size or padding that doesn't fit.
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The maximum of each window over the last three dims, (N, C, D, H, W) or without N: see `max_pool2d`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The maximum of each of `output_size` windows over the last dim: see `adaptive_max_pool2d`."""
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The maximum of each of H' × W' windows over the last two dims; see `adaptive_avg_pool2d` for which.

    Args:
        output_size: (H', W') or an int for both; None for a dim that stays as it is.
        return_indices: see `max_pool2d`.

    Raises:
        NotImplementedError: the dtype isn't floating-point.
        RuntimeError, TypeError, ValueError: a shape or size that doesn't fit.
    """
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The maximum of each of D' × H' × W' windows over the last three dims: see `adaptive_max_pool2d`."""
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
    """The elements of each window, (count, kernel); instead of those outside, the nearest of the window."""
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
    """(maxima, their numbers in the flattened last dims).

    tables: for each of these dims the elements of each window, (windows, elements).
    """
    y, number = _find_maxima(x, tables)
    shape, dims, size = x.shape, len(tables), math.prod(x.shape)
    lead, inside = shape[: x.ndim - dims], shape[x.ndim - dims :]
    first = np.arange(math.prod(lead), like=x).astype(np.int64) * math.prod(inside)
    flat = np.reshape(number + np.reshape(first, (*lead, *[1] * dims)), -1)
    apart = all([np.all(table[1:, 0] > table[:-1, -1]) for table in tables])

    def pull(g):
        g = np.reshape(g, -1)
        whole = slice_scatter.dual(g, flat, (size,)) if apart else scatter_nd.dual(g, (flat,), (0,), (size,))
        return np.reshape(whole, shape)

    return (y, number), pull


def _find_maxima(x: Any, tables: Sequence[np.ndarray]) -> tuple:
    """The maxima and their numbers; of equal ones the first counts, of several NaN the last."""
    numbers, step = np.zeros((1,) * x.ndim, np.int64, like=x), 1
    for axis, table in zip(range(x.ndim - 1, -1, -1), reversed(tables), strict=False):
        n, best, number = x.shape[axis], None, None
        for column in table.T:
            value = _column(x, column, axis)
            own = np.reshape(np.asarray(column * step, like=x), (-1, *[1] * (x.ndim - 1 - axis)))
            here = own + (_column(numbers, column, axis) if numbers.shape[axis] > 1 else numbers)
            if best is None:
                best, number = np.copy(value), np.copy(np.broadcast_to(here, value.shape))
            else:
                larger = np.greater(value, best) | np.not_equal(value, value)
                best, number = np.where(larger, value, best), np.where(larger, here, number)
        x, numbers, step = best, number, step * n
    return x, numbers


def _column(x: Any, index: np.ndarray, axis: int) -> Any:
    """x[…, index, …] at `axis`; a view if the index rises in equal steps."""
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    if len(index) and step > 0 and np.all(np.diff(index) == step):
        return x[(*[slice(None)] * axis, slice(int(index[0]), int(index[-1]) + 1, step))]
    return np.take(x, np.asarray(index, like=x), axis=axis)
