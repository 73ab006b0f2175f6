"""
Convolutions on the CPU: each thread takes a tile, some rows of the result, writes the windows of a few
channels into a matrix that stays in its cache, and multiplies it. See `functional.im2col` for why.

With few channels in a group the products are too small for that: see `convolution_rows`.
"""

from __future__ import annotations

import math

import numpy as np

from ....backends.address import address_of
from ....backends.gemm import PLAIN, ROW_MAJOR, get_blas_threads, set_blas_threads, sgemm
from ....backends.jit import kernel, prange
from ...functional.im2col import Geometry
from ..convolution import register
from .approximations import ONE, ZERO
from .convolution_rows import forward_rows, weight_rows
from .convolution_windows import fill, put, window_of
from .memory import aligned, aligned_array, floats, require_openblas
from .moments import SINGLE, require_single

PRODUCT = 1_000_000  # multiplications of a product that OpenBLAS computes without packing the matrices
HEIGHT, COLUMNS = 64, 224  # of such a product, about
FEW = 4  # input times output channels of a group up to which products are too small
IN_CACHE = 1 << 16  # elements of the weight's gradient that stay in a core's cache
PARTIALS = 16  # of the weight's gradient, a constant: the result must not depend on the number of threads


@kernel
def _forward(x, w, bias, y, steps, form, groups, height, block):
    """A tile is `height` rows of windows, which may span images; `block` channels are filled at a time.

    `y` is the address of the result, `steps` are its strides.
    """
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    taps, size = form.kernel_height * form.kernel_width, form.height * form.width
    image = x.shape[1] * size
    channels, outs, rows = x.shape[1] // groups, w.shape[0] // groups, x.shape[0] * form.rows
    k = channels * taps
    for tile in prange((rows + height - 1) // height):
        first = tile * height
        last = min(rows, first + height)
        n = (last - first) * form.columns
        columns, result = aligned(block * taps * n), aligned(outs * n).reshape(outs, n)
        for group in range(groups):
            for c in range(0, channels, block):
                count = min(block, channels - c)
                address = x.ctypes.data + 4 * (group * channels + c) * size
                fill(address, image, count, form, first, last, columns.ctypes.data)
                for o in range(0, outs, HEIGHT):
                    sgemm(
                        ROW_MAJOR, PLAIN, PLAIN, min(HEIGHT, outs - o), n, count * taps, ONE,
                        w.ctypes.data + 4 * ((group * outs + o) * k + c * taps), k,
                        columns.ctypes.data, n, ONE if c else ZERO, result.ctypes.data + 4 * o * n, n,
                    )
            for o in range(outs):
                for row in range(first, last):
                    at = y + 4 * (row // form.rows * steps[0] + (group * outs + o) * steps[1])
                    line = floats(at + 4 * (row % form.rows * steps[2]), form.columns * steps[3])
                    sums = result[o, (row - first) * form.columns : (row - first + 1) * form.columns]
                    put(sums, bias[group * outs + o], line, steps[3])
    set_blas_threads(before)


@kernel
def _weight(x, dy, partials, form, groups, height, block, width):
    """Partial sums of the weight's gradient, (parts, groups, k, outs), from dy as (images, pixels, outs).

    A task computes those of `width` channels, `block` of them at a time: they and a tile of dy stay in cache.
    """
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    taps, size = form.kernel_height * form.kernel_width, form.height * form.width
    image, all_outs = x.shape[1] * size, dy.shape[-1]
    channels, outs, rows = x.shape[1] // groups, all_outs // groups, x.shape[0] * form.rows
    tiles, parts = (rows + height - 1) // height, partials.shape[0]
    slices = (channels + width - 1) // width
    for task in prange(parts * groups * slices):
        part, group, begin = task // (groups * slices), task // slices % groups, task % slices * width
        end, out = min(channels, begin + width), partials[part, group]
        out[begin * taps : end * taps] = ZERO
        columns = aligned(block * taps * height * form.columns)
        for tile in range(part * tiles // parts, (part + 1) * tiles // parts):
            first = tile * height
            last = min(rows, first + height)
            n = (last - first) * form.columns
            for c in range(begin, end, block):
                count = min(block, end - c)
                address = x.ctypes.data + 4 * (group * channels + c) * size
                fill(address, image, count, form, first, last, columns.ctypes.data)
                for o in range(0, outs, HEIGHT):
                    sgemm(
                        ROW_MAJOR, PLAIN, PLAIN, count * taps, min(HEIGHT, outs - o), n, ONE,
                        columns.ctypes.data, n,
                        dy.ctypes.data + 4 * (first * form.columns * all_outs + group * outs + o), all_outs,
                        ONE, out.ctypes.data + 4 * (c * taps * outs + o), outs,
                    )
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
def _channel_sums(dy, out):
    images, channels, size = dy.shape
    for c in prange(channels):
        total = 0.0
        for n in range(images):
            part = ZERO
            for j in range(size):
                part += dy[n, c, j]
            total += part
        out[c] = total


def _require(*arrays: np.ndarray) -> None:
    require_single(*arrays)
    require_openblas()


def _few(channels: int, outs: int) -> bool:
    return channels * outs <= FEW


def _tile(form: Geometry, channels: int, outs: int) -> tuple[int, int]:
    """Returns the rows of a tile, and the channels that are filled at a time, for products of PRODUCT."""
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


def _weight_gradient(x: np.ndarray, dy: np.ndarray, shape: tuple[int, ...], form: Geometry) -> np.ndarray:
    out, groups = np.empty(shape, SINGLE), form.groups
    channels, outs = shape[1], shape[0] // groups
    if not x.size:
        out.fill(0)
    elif _few(channels, outs):
        weight_rows(x, dy, out, window_of(form), groups)
    elif _is_pointwise(form) and outs > channels:  # the smaller array is transposed
        _weight_partials(dy, x, form).sum(0, out=out.reshape(groups, outs, channels))
    else:
        _transposed_sum(_weight_partials(x, dy, form), out.reshape(groups, outs, -1))
    return out


def _is_pointwise(form: Geometry) -> bool:
    """Returns whether each window is the one pixel at its own position."""
    return form.kernel == (1, 1) and form.size == form.out and form.padding == ((0, 0), (0, 0))


def _weight_partials(x: np.ndarray, dy: np.ndarray, form: Geometry) -> np.ndarray:
    """Returns partial sums (parts, groups, k, outs) of the weight's gradient."""
    groups, pixels, taps = form.groups, math.prod(form.out), math.prod(form.kernel)
    channels, outs = x.shape[1] // groups, dy.shape[1] // groups
    channels_last = aligned_array((len(dy), pixels, dy.shape[1]))
    _transposed_sum(dy.reshape(1, *dy.shape[:2], pixels), channels_last)
    height, block = _tile(form, channels, outs)
    width = min(max(IN_CACHE // (taps * outs * block), 1) * block, channels)
    tiles, slices = -(-len(x) * form.out[0] // height), -(-channels // width)
    parts = min(tiles, -(-PARTIALS // (groups * slices)))
    partials = np.empty((parts, groups, channels * taps, outs), SINGLE)
    _weight(x, channels_last, partials, window_of(form), groups, height, block, width)
    return partials


def _bias_gradient(dy: np.ndarray) -> np.ndarray:
    out = np.empty(dy.shape[1], SINGLE)
    _channel_sums(dy, out)
    return out


register("cpu", _require, _convolve, _weight_gradient, _bias_gradient)
