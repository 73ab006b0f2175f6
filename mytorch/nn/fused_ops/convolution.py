"""Convolutions, for the kernels on both kinds of devices: every one becomes a convolution of images."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from ...backends.device import RawArray
from ..functional.composite import Unsupported
from ..functional.convolution import conv1d, conv2d
from ..functional.im2col import KERNELS, Geometry, Kernels, geometry


def register(
    kind: str, require: Callable, convolve: Callable, weight_gradient: Callable, bias_gradient: Callable,
    limit: float = math.inf,
) -> None:
    """Registers the kernels of conv1d and conv2d for a kind of device.

    All arrays are contiguous and on that device, with two spatial dims:

    Args:
        require: `require(*arrays)` raises `Unsupported` for dtypes without a kernel.
        convolve: `convolve(x, w, bias, y, form)` writes the convolution into y, a view with any strides. The
            padding in `form` may be negative, which crops; only that before the first element is used.
        weight_gradient: `weight_gradient(x, dy, shape, form)` returns the gradient of a weight of this shape.
        bias_gradient: `bias_gradient(dy)`, of (images, channels, pixels), returns that of the bias.
        limit: the number of elements that an image, and a channel of all images, of x and y must not reach.
    """

    def variant(x, w, bias, stride, padding, dilation, groups):
        require(*[a for a in (x, w, bias) if a is not None])
        if not w.size:
            raise Unsupported(f"there is no kernel for a weight of shape {w.shape}")
        x_shape, w_shape, dims = x.shape, w.shape, w.ndim - 2
        form = geometry(x_shape[-dims:], w_shape[2:], stride, padding, dilation, groups)
        y_shape = (*x_shape[: -dims - 1], w_shape[0], *form.out)
        if dims == 1:
            form = geometry(
                (1, *form.size), (1, *form.kernel), (1, *stride), ((0, 0), *padding), (1, *dilation), groups
            )
        images = math.prod(x_shape[: -dims - 1])
        sides = (w_shape[1] * groups, form.size), (w_shape[0], form.out)
        if any(max(images, channels) * math.prod(size) >= limit for channels, size in sides):
            raise Unsupported(
                f"the kernel's images and channels have fewer than {limit} elements, got {x_shape}, {y_shape}"
            )
        x = np.ascontiguousarray(x, like=x).reshape(images, w_shape[1] * groups, *form.size)
        w = np.ascontiguousarray(w, like=w).reshape(*w_shape[:2], *form.kernel)
        bias = None if bias is None else np.ascontiguousarray(bias, like=bias)
        y = np.empty((images, w_shape[0], *form.out), x.dtype, like=x)
        convolve(x, w, bias, y, form)

        def batched(dy):
            return np.ascontiguousarray(dy, like=dy).reshape(images, w_shape[0], *form.out)

        def x_vjp(dy):
            return _input_gradient(convolve, batched(dy), w, x.shape, form).reshape(x_shape)

        def weight_vjp(dy):
            return weight_gradient(x, batched(dy), w.shape, form).reshape(w_shape)

        def bias_vjp(dy):
            return bias_gradient(batched(dy).reshape(images, w_shape[0], math.prod(form.out)))

        return y.reshape(y_shape), (x_vjp, weight_vjp, None if bias is None else bias_vjp)

    KERNELS[kind] = Kernels(convolve, functools.partial(_input_gradient, convolve))
    conv1d.fused(kind)(variant)
    conv2d.fused(kind)(variant)


def _input_gradient(
    convolve: Callable, dy: RawArray, w: RawArray, shape: tuple[int, ...], form: Geometry
) -> RawArray:
    """Returns the convolution of dy with the flipped kernels; with a stride, one convolution for each offset
    within it, since pixels that are a stride apart meet the same elements of the kernel."""
    dx = np.empty(shape, dy.dtype, like=dy)
    flipped = np.swapaxes(w.reshape(form.groups, -1, *w.shape[1:]), 1, 2)
    flipped = flipped.reshape(shape[1], w.shape[0] // form.groups, *w.shape[2:])
    padding = [before for before, _ in form.padding]
    dims = zip(form.size, form.kernel, form.stride, padding, form.dilation, strict=True)
    for phase in itertools.product(*[[*_phases(*dim)] for dim in dims]):
        pixels, taps, before, dilation = zip(*phase, strict=True)
        y = dx[(..., *pixels)]
        kernels = np.ascontiguousarray(flipped[(..., *taps)], like=flipped)
        if kernels.size:
            padding = tuple([(p, 0) for p in before])
            sizes = tuple(kernels.shape[2:]), tuple(y.shape[2:])
            convolve(dy, kernels, None, y, Geometry(form.out, *sizes, (1, 1), padding, dilation, form.groups))
        else:
            y.fill(0)
    return dx


def _phases(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> Iterator[tuple[slice, slice, int, int]]:
    """Yields for each set of pixels of a dim that are `stride` apart: the pixels, the taps of the kernel that
    meet them (the last first), and the padding and the dilation of the convolution of dy with these.

    Pixel h meets tap k in window i where h + padding = i stride + k dilation.
    """
    for first in range(min(stride, size)):
        met = [k for k in range(kernel) if (first + padding - k * dilation) % stride == 0]
        if not met:
            yield slice(first, None, stride), slice(0, 0), 0, 1
            continue
        common = math.gcd(stride, dilation)
        taps = slice(met[-1], met[0] - 1 if met[0] else None, -(stride // common))
        window = (first + padding - met[-1] * dilation) // stride  # in which `first` meets the last tap
        yield slice(first, None, stride), taps, -window, dilation // common
