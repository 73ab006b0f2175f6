"""
Convolutions on the CPU: each thread takes a tile, some rows of the result, writes the windows of a few
channels into a matrix that stays in its cache, and multiplies that. See `functional.im2col` for why.

Where a group has few channels a product is too small to be worth it: see `convolution_rows`.
"""

from __future__ import annotations

import math

import numpy as np

from ....backends import gemm
from ....backends.address import address_of
from ....backends.gemm import PLAIN, ROW_MAJOR, get_blas_threads, set_blas_threads, sgemm
from ....backends.jit import kernel, prange
from ...functional.composite import Unsupported
from ...functional.im2col import Geometry
from ..convolution import register
from .approximations import ONE, ZERO
from .convolution_rows import forward_rows, weight_rows
from .convolution_windows import fill, put, window_of
from .memory import aligned, aligned_array, floats

SINGLE = np.dtype(np.float32)
PRODUCT = 1_000_000  # multiplications; up to so many, OpenBLAS reads the matrices where they are
HEIGHT, COLUMNS = 64, 224  # of such a product, about
FEW = 4  # channels that a group reads times those that it writes: products aren't worth it
NEAR = 1 << 16  # numbers of the weight's gradient that stay in a core's cache
SUMS = 16  # parts of the weight's gradient, whatever the number of threads: that mustn't change the result


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
        columns, result = aligned(block * places * n), aligned(outs * n).reshape(outs, n)
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


@kernel
def _weight(x, g, sums, form, groups, height, block, share):
    """Parts of the weight's gradient, (parts, groups, k, outs), from g as (images, places, outs).

    A task makes those of `share` channels, `block` of them at a time: they and a tile of g stay near.
    """
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    places, size = form.kernel_height * form.kernel_width, form.height * form.width
    image, all_outs = x.shape[1] * size, g.shape[-1]
    channels, outs, rows = x.shape[1] // groups, all_outs // groups, x.shape[0] * form.rows
    tiles, parts = (rows + height - 1) // height, sums.shape[0]
    shares = (channels + share - 1) // share
    for task in prange(parts * groups * shares):
        part, group, own = task // (groups * shares), task // shares % groups, task % shares * share
        end, out = min(channels, own + share), sums[part, group]
        out[own * places : end * places] = ZERO
        columns = aligned(block * places * height * form.columns)
        for tile in range(part * tiles // parts, (part + 1) * tiles // parts):
            first = tile * height
            last = min(rows, first + height)
            n = (last - first) * form.columns
            for c in range(own, end, block):
                count = min(block, end - c)
                place = x.ctypes.data + 4 * (group * channels + c) * size
                fill(place, image, count, form, first, last, columns.ctypes.data)
                for o in range(0, outs, HEIGHT):
                    sgemm(
                        ROW_MAJOR, PLAIN, PLAIN, count * places, min(HEIGHT, outs - o), n, ONE,
                        columns.ctypes.data, n,
                        g.ctypes.data + 4 * (first * form.columns * all_outs + group * outs + o), all_outs,
                        ONE, out.ctypes.data + 4 * (c * places * outs + o), outs,
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
    args = x, w, bias, address_of(y), tuple([s // 4 for s in y.strides]), window_of(form), form.groups
    if _few(channels, outs):
        forward_rows(*args)
    else:
        _forward(*args, *_tile(form, channels, outs))


def _weight_gradient(x: np.ndarray, g: np.ndarray, shape: tuple[int, ...], form: Geometry) -> np.ndarray:
    out, groups = np.empty(shape, SINGLE), form.groups
    channels, outs = shape[1], shape[0] // groups
    if not x.size:
        out.fill(0)
    elif _few(channels, outs):
        weight_rows(x, g, out, window_of(form), groups)
    elif _is_pointwise(form) and outs > channels:  # what has fewer numbers is the one to transpose
        _weight_parts(g, x, form).sum(0, out=out.reshape(groups, outs, channels))
    else:
        _transposed_sum(_weight_parts(x, g, form), out.reshape(groups, outs, -1))
    return out


def _is_pointwise(form: Geometry) -> bool:
    """Does a window have one pixel, the one at its own place?"""
    return form.kernel == (1, 1) and form.size == form.out and form.padding == ((0, 0), (0, 0))


def _weight_parts(x: np.ndarray, g: np.ndarray, form: Geometry) -> np.ndarray:
    """(parts, groups, k, outs), to be added up."""
    groups, places, taps = form.groups, math.prod(form.out), math.prod(form.kernel)
    channels, outs = x.shape[1] // groups, g.shape[1] // groups
    last = aligned_array((len(g), places, g.shape[1]))
    _transposed_sum(g.reshape(1, *g.shape[:2], places), last)
    height, block = _tile(form, channels, outs)
    share = min(max(NEAR // (taps * outs * block), 1) * block, channels)
    tiles, shares = -(-len(x) * form.out[0] // height), -(-channels // share)
    parts = min(tiles, -(-SUMS // (groups * shares)))
    sums = np.empty((parts, groups, channels * taps, outs), SINGLE)
    _weight(x, last, sums, window_of(form), groups, height, block, share)
    return sums


def _bias_gradient(g: np.ndarray) -> np.ndarray:
    out = np.empty(g.shape[1], SINGLE)
    _channel_sums(g, out)
    return out


register("cpu", _require, _convolve, _weight_gradient, _bias_gradient)
