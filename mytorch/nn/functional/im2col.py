"""
Convolution: the product of a kernel with every window of the input.

The windows of an image are copied to the columns of a matrix ("im2col"); then one matrix product per group
computes the convolution, and one each of its two gradients:

    y  = w @ columns(x)          dw = dy @ columns(x)^T          dx = overlap_add(w^T @ dy)

All three are derivatives of one scalar, sum(dy * conv(x, w)), which is linear in x, in w and in dy. So the
derivatives of each are the two others, which covers higher orders. A transposed convolution is the third.

Source: Chellapilla, Puri & Simard, "High performance convolutional neural networks for document processing",
2006, https://inria.hal.science/inria-00112631
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...backends.blas import product
from ...backends.device import RawArray, is_on_host
from ...core.op import op
from .windows import Ints, inner, output_size, overlap_add, padded, windows

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
CACHE = 8 << 20  # bytes of columns per block, so that the product reads them from the cache
GPU_MEMORY = 1 << 30


class Kernels(NamedTuple):
    """What computes convolutions on a kind of device, see `fused_ops.convolution`."""

    convolve: Callable  # (x, w, bias, y, form) writes y
    input_gradient: Callable  # (dy, w, shape of x, form) returns dx


KERNELS: dict[str, Kernels] = {}  # by kind of device; once they are loaded


class Geometry(NamedTuple):
    """The sizes of a convolution, one per dim."""

    size: Ints  # of the input
    kernel: Ints
    out: Ints  # the number of windows
    stride: Ints
    padding: tuple[tuple[int, int], ...]  # before and after
    dilation: Ints
    groups: int


def geometry(
    size: Ints, kernel: Ints, stride: Ints, padding: Sequence[tuple[int, int]], dilation: Ints, groups: int
) -> Geometry:
    """Returns the geometry for an input of this size; `out` is below 1 where no window fits."""
    room = [n + before + after for n, (before, after) in zip(size, padding, strict=True)]
    dims = zip(room, kernel, stride, dilation, strict=True)
    out = tuple([output_size(n, k, s, 0, d) for n, k, s, d in dims])
    return Geometry(tuple(size), tuple(kernel), out, stride, tuple(padding), dilation, groups)


@op(half="float16")
def convolution(x, w, bias, form):
    """Convolves (N, C, *size), (O, C / groups, *kernel) and (O,) or None to (N, O, *out)."""
    return _output(x, w, bias, form), (
        lambda g: conv_input_gradient.dual(g, w, None, form),
        lambda g: conv_weight_gradient.dual(x, g, form),
        _sum_by_channel,
    )


@op(half="float16")
def conv_input_gradient(g, w, bias, form):
    """Returns dx of (N, O, *out), (O, C / groups, *kernel) and (C,) or None: (N, C, *size)."""
    return _input(g, w, bias, form), (
        lambda gg: convolution.dual(gg, w, None, form),
        lambda gg: conv_weight_gradient.dual(gg, g, form),
        _sum_by_channel,
    )


@op(half="float16")
def conv_weight_gradient(x, g, form):
    """Returns dw of (N, C, *size) and (N, O, *out): (O, C / groups, *kernel)."""
    return _weight(x, g, form), (
        lambda gg: conv_input_gradient.dual(g, gg, None, form),
        lambda gg: convolution.dual(x, gg, None, form),
    )


def _sum_by_channel(g: RawArray) -> RawArray:
    """Returns the gradient of a bias."""
    return np.sum(g, axis=(0, *range(2, g.ndim)), dtype=SINGLE if g.dtype == HALF else None)


def raw(function: Callable) -> Callable:
    """A function of raw arrays that takes Tensors too, without a gradient; float16 is computed in float32."""

    @op(half="float16")
    def call(*args):
        if args[0].dtype != HALF:
            return function(*args), None
        args = [a.astype(SINGLE) if hasattr(a, "astype") else a for a in args]
        return function(*args).astype(HALF), None

    return call.dual


@raw
def _output(x, w, bias, form):
    kernels = _matrices(w, form.groups, 1)
    y = np.empty((len(x), len(w), *form.out), x.dtype, like=x)
    for images, rows, rows_out, block in _blocks(x, x.shape[1], form):
        columns = to_columns(x[images, :, rows], block)
        z = product(kernels, _matrices(columns, form.groups, w.ndim - 1))
        if bias is not None:
            z += np.reshape(bias, (*kernels.shape[:2], 1))
        y[images, :, rows_out] = np.swapaxes(np.reshape(z, (len(w), -1, *block.out)), 0, 1)
    return y


@raw
def _input(g, w, bias, form):
    flipped = _flipped(form)
    if flipped is not None and len(w) <= 2 * form.groups * w.shape[1]:
        return _output(g, _flipped_kernels(w, form.groups), bias, flipped)
    kernels = np.swapaxes(_matrices(w, form.groups, 1), 1, 2)
    channels = form.groups * w.shape[1]
    y = np.zeros((len(g), channels, *form.size), g.dtype, like=g)
    for images, rows, rows_out, block in _blocks(g, channels, form):
        errors = np.swapaxes(g[images, :, rows_out], 0, 1)
        columns = product(kernels, _matrices(errors, form.groups, 1))
        columns = np.reshape(columns, (channels, *form.kernel, *errors.shape[1:]))
        y[images, :, rows] += from_columns(columns, block)
    if bias is not None:
        y += np.reshape(bias, (channels, *[1] * len(form.size)))
    return y


@raw
def _weight(x, g, form):
    shape = (g.shape[1], x.shape[1] // form.groups, *form.kernel)
    total = np.zeros((form.groups, shape[0] // form.groups, math.prod(shape[1:])), x.dtype, like=x)
    for images, rows, rows_out, block in _blocks(x, x.shape[1], form):
        columns = _matrices(to_columns(x[images, :, rows], block), form.groups, len(shape) - 1)
        errors = _matrices(np.swapaxes(g[images, :, rows_out], 0, 1), form.groups, 1)
        total += product(errors, np.swapaxes(columns, 1, 2))
    return np.reshape(total, shape)


def to_columns(x: RawArray, form: Geometry) -> RawArray:
    """Returns (N, C, *size) as (C, *kernel, N, *out): the element of each window per kernel element.

    The result is a view of x or of x with its padding.
    """
    view = windows(padded(x, form.padding), form.kernel, form.stride, form.dilation)
    view = view[(slice(None), slice(None), *[slice(n) for n in form.out])]  # output_padding makes more fit
    out, kernel = _dims(form)
    return np.transpose(view, (1, *kernel, 0, *out))


def from_columns(columns: RawArray, form: Geometry) -> RawArray:
    """Returns the adjoint of `to_columns`: (C, *kernel, N, *out) to (N, C, *size), overlaps summed."""
    size = [n + before + after for n, (before, after) in zip(form.size, form.padding, strict=True)]
    out, kernel = _dims(form)
    view = np.transpose(columns, np.argsort((1, *kernel, 0, *out)).tolist())
    return inner(overlap_add(view, size, form.stride, form.dilation), form.padding)


def _dims(form: Geometry) -> tuple[range, range]:
    """Returns the dims of out and of kernel in (N, C, *out, *kernel)."""
    dims = len(form.size)
    return range(2, 2 + dims), range(2 + dims, 2 + 2 * dims)


def _matrices(x: RawArray, groups: int, split: int) -> RawArray:
    """Returns one matrix per group; the dims before `split` are the rows, which the groups divide."""
    return np.reshape(x, (groups, math.prod(x.shape[:split]) // groups, math.prod(x.shape[split:])))


def _flipped(form: Geometry) -> Geometry | None:
    """Returns the convolution of dy with flipped kernels that computes dx; None if there is none.

    It needs a stride of 1. Filling the columns of dy is several times as fast as summing those of dx, unless
    y has many more channels.
    """
    if max(form.stride) > 1:
        return None
    reach = [d * (k - 1) for k, d in zip(form.kernel, form.dilation, strict=True)]
    before = [r - b for r, (b, _) in zip(reach, form.padding, strict=True)]
    after = [n + r - o - b for n, r, o, b in zip(form.size, reach, form.out, before, strict=True)]
    if min(*before, *after) < 0:
        return None
    padding = tuple(zip(before, after, strict=True))
    return form._replace(size=form.out, out=form.size, padding=padding)


def _flipped_kernels(w: RawArray, groups: int) -> RawArray:
    """Returns (O, C / groups, *kernel) as (C, O / groups, *kernel), each kernel flipped in all dims."""
    w = np.flip(w, tuple(range(2, w.ndim)))
    w = np.swapaxes(np.reshape(w, (groups, len(w) // groups, *w.shape[1:])), 1, 2)
    return np.reshape(w, (groups * w.shape[1], *w.shape[2:]))


def _blocks(batch: RawArray, channels: int, form: Geometry) -> Iterator[tuple[slice, slice, slice, Geometry]]:
    """Yields (images, rows of x, rows of y, the convolution between them) for blocks of bounded memory."""
    room = CACHE if is_on_host(batch) else GPU_MEMORY
    row = channels * math.prod(form.kernel) * math.prod(form.out[1:]) * batch.itemsize
    rows = max(1, room // max(row, 1))
    images = max(1, rows // form.out[0])
    for i in _starts(batch.shape[0], images):
        for first in _starts(form.out[0], rows):
            yield slice(i, i + images), *_band(form, first, min(first + rows, form.out[0]))


def _starts(size: int, step: int) -> Iterator[int]:
    """Yields where blocks begin. A size may be symbolic, which `range` would not see."""
    start = 0
    while start < size:
        yield start
        start += step


def _band(form: Geometry, first: int, last: int) -> tuple[slice, slice, Geometry]:
    """Returns (rows of x, rows of y, the convolution between them) for y[first:last], along the first dim."""
    n, stride = form.size[0], form.stride[0]
    begin = first * stride - form.padding[0][0]
    end = begin + (last - 1 - first) * stride + form.dilation[0] * (form.kernel[0] - 1) + 1
    rows = slice(min(max(begin, 0), n), max(min(end, n), 0))
    size = rows.stop - rows.start
    before = min(max(-begin, 0), end - begin)
    padding = (before, end - begin - before - size)
    block = form._replace(
        size=(size, *form.size[1:]), out=(last - first, *form.out[1:]), padding=(padding, *form.padding[1:])
    )
    return rows, slice(first, last), block
