"""The windows of a convolution as the columns of a matrix, and its results as rows of an image."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from numba import types

from ....backends.jit import device
from ...functional.im2col import Geometry
from .approximations import ZERO
from .memory import floats

copy_bytes = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))


class Window(NamedTuple):
    """The integers of a `Geometry` with two spatial dims. Negative padding crops."""

    height: int
    width: int
    kernel_height: int
    kernel_width: int
    rows: int  # of the result
    columns: int
    stride: int
    stride_x: int
    padding: int  # before
    padding_x: int
    dilation: int
    dilation_x: int


def window_of(form: Geometry) -> Window:
    padding = [before for before, _ in form.padding]
    pairs = form.size, form.kernel, form.out, form.stride, padding, form.dilation
    return Window(*itertools.chain.from_iterable(pairs))


@device
def meeting(offset, stride, size, first, last):
    """The range of the windows `first` to `last` whose element, at `offset` in window 0, is inside."""
    begin = 0 if offset >= 0 else (stride - 1 - offset) // stride
    end = 0 if offset >= size else (size - 1 - offset) // stride + 1
    begin = min(max(begin, first), last)
    return begin, max(min(end, last), begin)


@device
def clear(address, count):
    line = floats(address, count)
    for j in range(count):
        line[j] = ZERO


@device
def copy_rows(x, y, form, count, begin, end):
    """Copies what one tap of the kernel meets in `count` rows of windows: elements from x on for the windows
    `begin` to `end`, 0 for the others. `x` and `y` are addresses."""
    width, taken = form.columns, end - begin
    if form.stride == form.stride_x == 1 and width == form.width:
        copy_bytes(y + 4 * begin, x, 4 * ((count - 1) * width + taken))
    elif form.stride_x == 1:
        for i in range(count):
            copy_bytes(y + 4 * (i * width + begin), x + 4 * i * form.stride * form.width, 4 * taken)
    else:
        for i in range(count):
            line = floats(y + 4 * (i * width + begin), taken)
            source = floats(x + 4 * i * form.stride * form.width, taken * form.stride_x)
            for j in range(taken):
                line[j] = source[j * form.stride_x]
    if taken < width:
        rows = floats(y, count * width)
        for i in range(count):
            for j in range(begin):
                rows[i * width + j] = ZERO
            for j in range(end, width):
                rows[i * width + j] = ZERO


@device
def fill(x, image, channels, form, first, last, out):
    """Writes what the kernel's taps meet in the rows of windows `first` to `last` of all images: a matrix
    (channels kernel_height kernel_width, (last - first) columns) at the address `out`.

    `x` is the address of the first channel, `image` the stride of images.
    """
    width, length = form.columns, (last - first) * form.columns
    row = first
    while row < last:
        n, top = row // form.rows, row % form.rows
        bottom = min(form.rows, top + last - row)
        for a in range(form.kernel_height):
            h = a * form.dilation - form.padding
            above, lower = meeting(h, form.stride, form.height, top, bottom)
            for b in range(form.kernel_width):
                w = b * form.dilation_x - form.padding_x
                begin, end = meeting(w, form.stride_x, form.width, 0, width)
                upper = above if begin < end else lower
                source = x + 4 * (
                    n * image + (upper * form.stride + h) * form.width + begin * form.stride_x + w
                )
                y = out + 4 * ((a * form.kernel_width + b) * length + (row - first) * width)
                for _ in range(channels):
                    clear(y, (upper - top) * width)
                    if upper < lower:
                        copy_rows(source, y + 4 * (upper - top) * width, form, lower - upper, begin, end)
                    clear(y + 4 * (lower - top) * width, (bottom - lower) * width)
                    source += 4 * form.height * form.width
                    y += 4 * form.kernel_height * form.kernel_width * length
        row += bottom - top


@device
def put(sums, shift, line, step):
    """Adds the bias and writes to every `step`-th element of a row."""
    if step == 1:
        for j in range(sums.size):
            line[j] = sums[j] + shift
    else:
        for j in range(sums.size):
            line[j * step] = sums[j] + shift
