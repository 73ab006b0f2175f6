"""Pooling: the mean, or the p-norm, of each window over the last dims."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from ... import ops
from ...backends.device import RawArray, device_of
from ...backends.dtypes import is_floating_point
from ...core.op import op
from ...core.tensor import Tensor
from ...ops.dims import fixed_size
from .composite import Unsupported, composite
from .convolution import conv2d
from .im2col import KERNELS, Geometry, geometry
from .pooling import check_shape, read_output_size, read_window, window_counts
from .resample import bins, resample
from .types import IntOrInts
from .variant import uses_kernels
from .windows import element_slices, inner, ntuple, output_size, overlap_add, padded

# Where NumPy is as fast as a kernel: elements that a core's cache holds, and those of a row of the result.
IN_CACHE, SHORT_ROW = 1 << 20, 16


@composite
def avg_pool1d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:
    """Returns the mean of each window over the last dim, (N, C, L) or (C, L): see `avg_pool2d`.

    >>> F.avg_pool1d(mytorch.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[2.00000 1.00000]]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite
def avg_pool2d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """Returns the mean of each window over the last two dims, (N, C, H, W) or (C, H, W); int64 truncates.

    Args:
        kernel_size, stride, padding, ceil_mode: see `max_pool2d`; padding is zeros.
        count_include_pad: whether the mean includes the padding.
        divisor_override: divide the sums by this.

    Raises:
        NotImplementedError: the dtype is neither floating-point nor int64.
        RuntimeError: an invalid shape, size, padding or divisor.

    >>> F.avg_pool2d(mytorch.ones(1, 3, 8, 8), 2).shape
    Size([1, 3, 4, 4])
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite
def avg_pool3d(
    input: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """Returns the mean of each window over the last three dims, with or without N: see `avg_pool2d`.

    >>> F.avg_pool3d(mytorch.ones(1, 3, 8, 8, 8), 2).shape
    Size([1, 3, 4, 4, 4])
    """
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite
def adaptive_avg_pool1d(input: Tensor, output_size: IntOrInts) -> Tensor:
    """Returns the mean of each of `output_size` windows over the last dim: see `adaptive_avg_pool2d`.

    >>> F.adaptive_avg_pool1d(mytorch.ones(1, 3, 8), 2).shape
    Size([1, 3, 2])
    """
    return _adaptive_avg_pool(1, input, output_size)


@composite
def adaptive_avg_pool2d(input: Tensor, output_size: IntOrInts) -> Tensor:
    """Returns the mean of each of H' × W' windows over the last two dims, (N, C, H, W) or (C, H, W).

    Window i of H goes from floor(i H / H') to ceil((i + 1) H / H').

    Args:
        output_size: (H', W') or an int for both; None preserves a dim.

    Raises:
        NotImplementedError: the dtype is not floating-point.
        RuntimeError, TypeError, ValueError: an invalid shape or size.

    >>> F.adaptive_avg_pool2d(mytorch.ones(1, 3, 8, 8), 1).shape
    Size([1, 3, 1, 1])
    """
    return _adaptive_avg_pool(2, input, output_size)


@composite
def adaptive_avg_pool3d(input: Tensor, output_size: IntOrInts) -> Tensor:
    """Returns the means of D' × H' × W' windows over the last three dims: see `adaptive_avg_pool2d`.

    >>> F.adaptive_avg_pool3d(mytorch.ones(1, 3, 8, 8, 8), 1).shape
    Size([1, 3, 1, 1, 1])
    """
    return _adaptive_avg_pool(3, input, output_size)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Returns (sum x^p)^(1/p) over each window of the last dim, p = `norm_type`: see `avg_pool2d`.

    >>> F.lp_pool1d(mytorch.tensor([[[3.0, 4.0]]]), 2, kernel_size=2)
    tensor([[[5.00000]]])
    """
    return _lp_pool(avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Returns (sum x^p)^(1/p) over each window of the last two dims: see `lp_pool1d`.

    >>> F.lp_pool2d(mytorch.ones(1, 3, 8, 8), 2, kernel_size=2).shape
    Size([1, 3, 4, 4])
    """
    return _lp_pool(avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Returns (sum x^p)^(1/p) over each window of the last three dims: see `lp_pool1d`.

    >>> F.lp_pool3d(mytorch.ones(1, 3, 8, 8, 8), 2, kernel_size=2).shape
    Size([1, 3, 4, 4, 4])
    """
    return _lp_pool(avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


def _avg_pool(dims, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    name = f"avg_pool{dims}d"
    kernel, stride, padding, ones = read_window(name, dims, kernel_size, stride, padding, 1)
    counts = window_counts(name, input.shape, kernel, stride, padding, ones, ceil_mode)
    if not is_floating_point(input.dtype) and input.dtype != np.int64:
        raise NotImplementedError(f"{name}(): not implemented for {input.dtype} tensors")
    if divisor_override == 0:
        raise RuntimeError(f"{name}(): divisor must be not zero")
    divisor, around = np.ones((), int), []
    for n, count, k, s, p in zip(input.shape[-dims:], counts, kernel, stride, padding, strict=True):
        n, count, k, s, p = map(fixed_size, (n, count, k, s, p))
        start = np.arange(count) * s - p
        end = np.minimum(start + k, n + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        divisor = np.multiply.outer(divisor, end - start)
        around.append((p, max((count - 1) * s - p + k - n, 0)))
    total = _window_sum(input, kernel, stride, tuple(around))
    if divisor_override is not None or np.all(divisor == divisor.flat[0]):
        divisor = divisor_override or int(divisor.flat[0])
    else:
        divisor = Tensor(divisor, dtype=input.dtype, device=input.device)
    return ops.div(total, divisor, rounding_mode=None if is_floating_point(input.dtype) else "trunc")


@op
def _window_sum(x, kernel, stride, around):
    """Returns the sum of each window of x, padded with (before, after) zeros in each of the last dims."""
    inside = tuple([n + sum(p) for n, p in zip(x.shape[-len(kernel) :], around, strict=True)])
    form = _convolved(x, x.size, inside, kernel, stride, around)
    if form is not None:
        y = np.empty((*x.shape[:-2], *form.out), x.dtype)
        KERNELS["cpu"].convolve(_images(x), _weight(form), None, _images(y), form)
        return y, lambda g: _window_broadcast.dual(g, kernel, stride, around, inside)
    x = padded(x, around)
    ones = (1,) * len(kernel)
    counts = tuple(map(output_size, inside, kernel, stride))
    offsets = itertools.product(*map(range, kernel))
    elements = [x[(..., *element_slices(i, counts, stride, ones))] for i in offsets]
    y = functools.reduce(np.add, elements) if len(elements) > 1 else np.copy(elements[0])
    return y, lambda g: _window_broadcast.dual(g, kernel, stride, around, inside)


@op
def _window_broadcast(g, kernel, stride, around, inside):
    """Returns the adjoint of `_window_sum`: each element of a window gets its g."""
    dims = len(kernel)
    form = _convolved(g, g.size * math.prod(stride), inside, kernel, stride, around)
    if form is not None:
        images = _images(g)
        x = KERNELS["cpu"].input_gradient(images, _weight(form), (*images.shape[:2], *form.size), form)
        return x.reshape(*g.shape[:-2], *form.size), lambda gg: _window_sum.dual(gg, kernel, stride, around)
    windows = np.broadcast_to(g[(..., *[None] * dims)], (*g.shape, *kernel))
    x = inner(overlap_add(windows, inside, stride, (1,) * dims), around)
    return x, lambda gg: _window_sum.dual(gg, kernel, stride, around)


def _convolved(x, count, inside, kernel, stride, around) -> Geometry | None:
    """Returns the convolution with ones that adds up the windows of `count` elements, or None for NumPy.

    Its kernel reads an image once, and adds in the same order; NumPy reads it for each element of a window.
    Where windows don't overlap, that is once, too.
    """
    if count <= IN_CACHE:
        return None
    overlap = len(kernel) == 2 and all(k > s for k, s in zip(kernel, stride, strict=True))
    if not (overlap and device_of(x).kernels == "cpu" and x.dtype == np.float32 and uses_kernels()):
        return None
    size = tuple([n - sum(p) for n, p in zip(inside, around, strict=True)])
    form = geometry(size, kernel, stride, around, (1, 1), x.shape[-3])
    if form.out[1] < SHORT_ROW:
        return None
    try:
        conv2d.kernel("cpu")
    except Unsupported:
        return None
    return form


def _images(x: RawArray) -> RawArray:
    """Returns x in the form that kernels take, (N, C, H, W), contiguous."""
    return np.ascontiguousarray(x).reshape(-1, *x.shape[-3:])


def _weight(form: Geometry) -> RawArray:
    return np.ones((form.groups, 1, *form.kernel), np.float32)


def _adaptive_avg_pool(dims, input, output_size):
    name = f"adaptive_avg_pool{dims}d"
    counts = read_output_size(name, dims, input.shape, output_size)
    check_shape(name, dims, input.shape, input.shape[-dims:])
    if not is_floating_point(input.dtype):
        raise NotImplementedError(f"{name}(): not implemented for {input.dtype} tensors")
    for dim, count in enumerate(counts, input.ndim - dims):
        if count and input.shape[dim] % count == 0:  # adjacent windows of equal length
            input = ops.mean(ops.unflatten(input, dim, (count, -1)), dim + 1)
        else:
            input = resample(input, bins(input.shape[dim], count), dim)
    return input


def _lp_pool(avg_pool, dims, input, norm_type, kernel_size, stride, ceil_mode):
    count = math.prod(ntuple(kernel_size, dims, f"lp_pool{dims}d(): kernel_size", 1))
    y = avg_pool(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return (ops.sign(y) * ops.relu(abs(y)) * count) ** (1 / norm_type)
