"""
Convolutions on the CPU: each thread takes a tile, some rows of the result, writes the windows of a few
channels into a matrix that stays in its cache, and multiplies that. See `functional.im2col` for why.

Where a group has few channels a product is too small to be worth it: then each row of the result is the sum
of shifted rows of the input.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numba import types

from ....backends import gemm
from ....backends.gemm import PLAIN, ROW_MAJOR, get_blas_threads, set_blas_threads, sgemm
from ....backends.jit import device, kernel, prange
from ...functional.composite import Unsupported
from ...functional.im2col import Geometry
from ..convolution import register
from .approximations import ONE, ZERO
from .memory import floats

SINGLE = np.dtype(np.float32)
PRODUCT = 1_000_000  # multiplications; up to so many, OpenBLAS reads the matrices where they are
HEIGHT, COLUMNS = 64, 224  # of such a product, about
FEW = 4  # channels that a group reads times those that it writes: products aren't worth it
SUMS = 16  # parts of the weight's gradient, whatever the number of threads: that mustn't change the result

copy_bytes = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))


class Window(NamedTuple):
    """The numbers of a `Geometry` of two dims. Negative padding cuts off."""

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


@device
def meeting(offset, stride, size, first, last):
    """Which of the windows `first` to `last` have an element, at `offset` in window 0, inside: first, end."""
    begin = 0 if offset >= 0 else (stride - 1 - offset) // stride
    end = 0 if offset >= size else (size - 1 - offset) // stride + 1
    begin = min(max(begin, first), last)
    return begin, max(min(end, last), begin)


@device
def clear(place, count):
    line = floats(place, count)
    for j in range(count):
        line[j] = ZERO


@device
def copy_rows(x, y, form, count, begin, end):
    """What one place of the kernel meets in `count` rows of windows: numbers from x on for the windows
    `begin` to `end`, and 0 for the others. `x` and `y` are addresses."""
    width, taken = form.columns, end - begin
    if form.stride == form.stride_x == 1 and width == form.width:
        copy_bytes(y + 4 * begin, x, 4 * ((count - 1) * width + taken))
    elif form.stride_x == 1:
        for i in range(count):
            copy_bytes(y + 4 * (i * width + begin), x + 4 * i * form.stride * form.width, 4 * taken)
    else:
        for i in range(count):
            line = floats(y + 4 * (i * width + begin), taken)
            there = floats(x + 4 * i * form.stride * form.width, taken * form.stride_x)
            for j in range(taken):
                line[j] = there[j * form.stride_x]
    if taken < width:
        rows = floats(y, count * width)
        for i in range(count):
            for j in range(begin):
                rows[i * width + j] = ZERO
            for j in range(end, width):
                rows[i * width + j] = ZERO


@device
def fill(x, image, channels, form, first, last, out):
    """What the places of the kernel meet in the rows of windows `first` to `last` of all images: a matrix
    (channels kernel_height kernel_width, (last - first) columns) at the address `out`.

    `x` is the address of the first of the channels, `image` how far the next image is.
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


@kernel
def _forward(x, w, bias, y, steps, form, groups, height, block):
    """A tile is `height` rows of windows, perhaps of several images; `block` channels are filled at a time.

    `y` is the address of the result, `steps` how far its next image, channel, row and column are.
    """
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    places, size = form.kernel_height * form.kernel_width, form.height * form.width
    image = x.shape[1] * size
    channels, outs, rows = x.shape[1] // groups, w.shape[0] // groups, x.shape[0] * form.rows
    k = channels * places
    for tile in prange((rows + height - 1) // height):
        first = tile * height
        last = min(rows, first + height)
        n = (last - first) * form.columns
        columns, result = np.empty(block * places * n, np.float32), np.empty((outs, n), np.float32)
        for group in range(groups):
            for c in range(0, channels, block):
                count = min(block, channels - c)
                place = x.ctypes.data + 4 * (group * channels + c) * size
                fill(place, image, count, form, first, last, columns.ctypes.data)
                for o in range(0, outs, HEIGHT):
                    sgemm(
                        ROW_MAJOR, PLAIN, PLAIN, min(HEIGHT, outs - o), n, count * places, ONE,
                        w.ctypes.data + 4 * ((group * outs + o) * k + c * places), k,
                        columns.ctypes.data, n, ONE if c else ZERO, result.ctypes.data + 4 * o * n, n,
                    )  # fmt: skip
            for o in range(outs):
                for row in range(first, last):
                    at = y + 4 * (row // form.rows * steps[0] + (group * outs + o) * steps[1])
                    line = floats(at + 4 * (row % form.rows * steps[2]), form.columns * steps[3])
                    sums = result[o, (row - first) * form.columns : (row - first + 1) * form.columns]
                    put(sums, bias[group * outs + o], line, steps[3])
    set_blas_threads(before)


@device
def put(sums, shift, line, step):
    """Add the bias, and write every `step`-th element of a row."""
    if step == 1:
        for j in range(sums.size):
            line[j] = sums[j] + shift
    else:
        for j in range(sums.size):
            line[j * step] = sums[j] + shift


@kernel
def _weight(x, g, sums, form, groups, height, block):
    """Parts of the weight's gradient, (parts, groups, k, outs), from g as (images, places, outs)."""
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    places, size = form.kernel_height * form.kernel_width, form.height * form.width
    image, all_outs = x.shape[1] * size, g.shape[-1]
    channels, outs, rows = x.shape[1] // groups, all_outs // groups, x.shape[0] * form.rows
    tiles, parts = (rows + height - 1) // height, sums.shape[0]
    blocks = (channels + block - 1) // block
    for task in prange(parts * groups * blocks):
        part, group, c = task // (groups * blocks), task // blocks % groups, task % blocks * block
        count = min(block, channels - c)
        out = sums[part, group, c * places : (c + count) * places]
        out[:] = ZERO
        columns = np.empty(count * places * height * form.columns, np.float32)
        for tile in range(part * tiles // parts, (part + 1) * tiles // parts):
            first = tile * height
            last = min(rows, first + height)
            n = (last - first) * form.columns
            place = x.ctypes.data + 4 * (group * channels + c) * size
            fill(place, image, count, form, first, last, columns.ctypes.data)
            for o in range(0, outs, HEIGHT):
                sgemm(
                    ROW_MAJOR, PLAIN, PLAIN, count * places, min(HEIGHT, outs - o), n, ONE,
                    columns.ctypes.data, n,
                    g.ctypes.data + 4 * (first * form.columns * all_outs + group * outs + o), all_outs, ONE,
                    out.ctypes.data + 4 * o, outs,
                )  # fmt: skip
    set_blas_threads(before)


@kernel
def _transposed_sum(parts, out):
    """out[a, j, i] = sum_p parts[p, a, i, j]"""
    count, arrays, m, n = parts.shape
    blocks = (n + 31) // 32
    for task in prange(arrays * blocks):
        a, left = task // blocks, task % blocks * 32
        right = min(left + 32, n)
        for top in range(0, m, 32):
            bottom = min(top + 32, m)
            for j in range(left, right):
                for i in range(top, bottom):
                    out[a, j, i] = parts[0, a, i, j]
            for p in range(1, count):
                for j in range(left, right):
                    for i in range(top, bottom):
                        out[a, j, i] += parts[p, a, i, j]


@kernel
def _forward_few(x, w, bias, y, steps, form, groups):
    """`_forward`, one channel of one image at a time, as sums of rows."""
    channels, all_outs = w.shape[1], w.shape[0]
    outs = all_outs // groups
    for task in prange(x.shape[0] * all_outs):
        n, o = task // all_outs, task % all_outs
        sums = np.empty(form.columns, np.float32)
        for i in range(form.rows):
            sums[:] = ZERO
            for c in range(channels):
                for a in range(form.kernel_height):
                    h = i * form.stride + a * form.dilation - form.padding
                    if 0 <= h < form.height:
                        row = x[n, o // outs * channels + c, h]
                        for b in range(form.kernel_width):
                            place = b * form.dilation_x - form.padding_x
                            begin, end = meeting(place, form.stride_x, form.width, 0, form.columns)
                            add_row(row, w[o, c, a, b], place, form.stride_x, sums, begin, end)
            line = floats(y + 4 * (n * steps[0] + o * steps[1] + i * steps[2]), form.columns * steps[3])
            put(sums, bias[o], line, steps[3])


@device
def add_row(row, factor, place, stride, sums, begin, end):
    if begin == end:
        return
    to, source = sums[begin:end], row[begin * stride + place :]
    if stride == 1:
        for j in range(to.size):
            to[j] += factor * source[j]
    else:
        for j in range(to.size):
            to[j] += factor * source[j * stride]


@kernel
def _weight_few(x, g, out, form, groups):
    """The gradient of the weight, one kernel at a time, as products of rows."""
    all_outs, channels = out.shape[:2]
    outs = all_outs // groups
    for task in prange(all_outs * channels):
        o, c = task // channels, task % channels
        for a in range(form.kernel_height):
            for b in range(form.kernel_width):
                h, w = a * form.dilation - form.padding, b * form.dilation_x - form.padding_x
                upper, lower = meeting(h, form.stride, form.height, 0, form.rows)
                begin, end = meeting(w, form.stride_x, form.width, 0, form.columns)
                total = 0.0
                if begin < end:
                    for n in range(x.shape[0]):
                        for i in range(upper, lower):
                            row = x[n, o // outs * channels + c, i * form.stride + h]
                            total += dot(
                                g[n, o, i, begin:end], row[begin * form.stride_x + w :], form.stride_x
                            )
                out[o, c, a, b] = total


@device
def dot(x, y, stride):
    """sum_j x[j] y[j stride]"""
    total = ZERO
    if stride == 1:
        for j in range(x.size):
            total += x[j] * y[j]
    else:
        for j in range(x.size):
            total += x[j] * y[j * stride]
    return total


@kernel
def _channel_sums(g, out):
    images, channels, size = g.shape
    for c in prange(channels):
        total = 0.0
        for n in range(images):
            part = ZERO
            for j in range(size):
                part += g[n, c, j]
            total += part
        out[c] = total


def _require(*arrays: np.ndarray) -> None:
    for a in arrays:
        if a.dtype != SINGLE:
            raise Unsupported(f"the kernel is for float32, got {a.dtype}")
    if not gemm.is_available():
        raise Unsupported("NumPy has no OpenBLAS that could be called from a kernel")


def _window(form: Geometry) -> Window:
    padding = [before for before, _ in form.padding]
    pairs = form.size, form.kernel, form.out, form.stride, padding, form.dilation
    return Window(*itertools.chain.from_iterable(pairs))


def _few(channels: int, outs: int) -> bool:
    return channels * outs <= FEW


def _tile(form: Geometry, channels: int, outs: int) -> tuple[int, int]:
    """The rows of a tile, and the channels that are filled at a time, for products of PRODUCT."""
    height = max(1, round(COLUMNS / form.out[1]))
    block = PRODUCT // (min(outs, HEIGHT) * height * form.out[1] * math.prod(form.kernel))
    return height, min(max(block, 1), channels)


def _convolve(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, y: np.ndarray, form: Geometry) -> None:
    """See `fused_ops.convolution`."""
    if not y.size:
        return
    channels, outs = w.shape[1], len(w) // form.groups
    bias = np.zeros(len(w), SINGLE) if bias is None else bias
    args = x, w, bias, gemm.address_of(y), tuple([s // 4 for s in y.strides]), _window(form), form.groups
    if _few(channels, outs):
        _forward_few(*args)
    else:
        _forward(*args, *_tile(form, channels, outs))


def _weight_gradient(x: np.ndarray, g: np.ndarray, shape: tuple[int, ...], form: Geometry) -> np.ndarray:
    out, groups = np.empty(shape, SINGLE), form.groups
    channels, outs, k = shape[1], shape[0] // groups, math.prod(shape[1:])
    if not x.size:
        out.fill(0)
    elif _few(channels, outs):
        _weight_few(x, g, out, _window(form), groups)
    else:
        places = math.prod(form.out)
        last = np.empty((len(g), places, shape[0]), SINGLE)
        _transposed_sum(g.reshape(1, len(g), shape[0], places), last)
        height, block = _tile(form, channels, outs)
        tiles, blocks = -(-len(x) * form.out[0] // height), -(-channels // block)
        sums = np.empty((min(tiles, -(-SUMS // (groups * blocks))), groups, k, outs), SINGLE)
        _weight(x, last, sums, _window(form), groups, height, block)
        _transposed_sum(sums, out.reshape(groups, outs, k))
    return out


def _bias_gradient(g: np.ndarray) -> np.ndarray:
    out = np.empty(g.shape[1], SINGLE)
    _channel_sums(g, out)
    return out


register("cpu", _require, _convolve, _weight_gradient, _bias_gradient)
