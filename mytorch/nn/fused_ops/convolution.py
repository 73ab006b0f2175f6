"""What the kernels of convolutions share on both devices: all becomes one kind of convolution of images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..functional.composite import Unsupported
from ..functional.convolution import conv1d, conv2d
from ..functional.im2col import Geometry, geometry


def register(
    kind: str, require: Callable, convolve: Callable, weight_gradient: Callable, channel_sums: Callable,
    limit: float = math.inf,
) -> None:  # fmt: skip
    """Make the kernels of conv1d and conv2d for a kind of device.

    All arrays are contiguous and on that device, with two dims of places:

    Args:
        require: `require(*arrays)` raises `Unsupported` for dtypes that the kernels don't take.
        convolve: `convolve(x, w, bias, y, form)` writes the convolution into y, a view with any strides. The
            padding in `form` may be negative, which cuts off, and says nothing of the end.
        weight_gradient: `weight_gradient(x, g, shape, form)` is the new gradient of a weight of this shape.
        channel_sums: `channel_sums(g)`, of (images, channels, places), is that of the bias.
        limit: an image has fewer elements than that, and so has a channel of all images, of x and of y.
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
        if any(max(images, channels) * math.prod(places) >= limit for channels, places in sides):
            raise Unsupported(
                f"the kernel's images and channels have fewer than {limit} elements, got {x_shape}, {y_shape}"
            )
        x = np.ascontiguousarray(x, like=x).reshape(images, w_shape[1] * groups, *form.size)
        w = np.ascontiguousarray(w, like=w).reshape(*w_shape[:2], *form.kernel)
        bias = None if bias is None else np.ascontiguousarray(bias, like=bias)
        y = np.empty((images, w_shape[0], *form.out), x.dtype, like=x)
        convolve(x, w, bias, y, form)

        def flat(g):
            return np.ascontiguousarray(g, like=g).reshape(images, w_shape[0], *form.out)

        def grad_x(g):
            return _input_gradient(convolve, flat(g), w, x.shape, form).reshape(x_shape)

        def grad_w(g):
            return weight_gradient(x, flat(g), w.shape, form).reshape(w_shape)

        def grad_bias(g):
            return channel_sums(flat(g).reshape(images, w_shape[0], math.prod(form.out)))

        return y.reshape(y_shape), (grad_x, grad_w, None if bias is None else grad_bias)

    conv1d.fused(kind)(variant)
    conv2d.fused(kind)(variant)


def _input_gradient(convolve: Callable, g: Any, w: Any, shape: tuple[int, ...], form: Geometry) -> Any:
    """A convolution of g with the turned kernels, or as many as there are steps in a stride: of the pixels
    that far apart each meets the same places of the kernel, and no others."""
    out = np.empty(shape, g.dtype, like=g)
    turned = np.swapaxes(w.reshape(form.groups, -1, *w.shape[1:]), 1, 2)
    turned = turned.reshape(shape[1], w.shape[0] // form.groups, *w.shape[2:])
    padding = [before for before, _ in form.padding]
    dims = zip(form.size, form.kernel, form.stride, padding, form.dilation, strict=True)
    for parts in itertools.product(*[[*_phases(*dim)] for dim in dims]):
        pixels, places, before, dilation = zip(*parts, strict=True)
        y = out[(..., *pixels)]
        kernels = np.ascontiguousarray(turned[(..., *places)], like=turned)
        if kernels.size:
            padding = tuple([(p, 0) for p in before])
            sizes = tuple(kernels.shape[2:]), tuple(y.shape[2:])
            convolve(g, kernels, None, y, Geometry(form.out, *sizes, (1, 1), padding, dilation, form.groups))
        else:
            y.fill(0)
    return out


def _phases(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> Iterator[tuple[slice, slice, int, int]]:
    """For the pixels of a dim that are `stride` apart: which they are, which places of the kernel meet them
    (the last first), and the padding and the dilation of the convolution of g with these.

    Pixel h meets place k in window i where h + padding = i stride + k dilation.
    """
    for first in range(min(stride, size)):
        met = [k for k in range(kernel) if (first + padding - k * dilation) % stride == 0]
        if not met:
            yield slice(first, None, stride), slice(0, 0), 0, 1
            continue
        common = math.gcd(stride, dilation)
        places = slice(met[-1], met[0] - 1 if met[0] else None, -(stride // common))
        window = (first + padding - met[-1] * dilation) // stride  # the one in which `first` meets the last
        yield slice(first, None, stride), places, -window, dilation // common
