"""
Convolutions as products whose second matrix is never stored (implicit im2col): a program loads the windows of
its tile from the image. Row k of that matrix is a channel and a tap of the kernel, column p a window; see
`functional.im2col`.

Source: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, https://arxiv.org/abs/1410.0759,
section 3.1
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.im2col import Geometry
from ..convolution import register
from .attention_parts import PRECISION, strides_of
from .chips import Chip
from .launch import chip, launch, require_dtypes
from .moments import column_sums
from .sizes import cdiv, next_power_of_2
from .tune import Config, tuned

NAMES = "BLOCK_O", "BLOCK_P", "BLOCK_K", "num_warps", "num_stages"
# By bytes of an element, the largest tiles last.
FORWARD = {
    2: [(32, 64, 32, 4, 3), (64, 64, 32, 4, 3), (64, 128, 32, 8, 3), (128, 128, 32, 8, 3)],
    4: [(32, 64, 16, 4, 2), (64, 64, 16, 8, 3), (64, 128, 16, 8, 2)],
}
WEIGHT = {
    2: [(32, 32, 64, 4, 3), (64, 32, 64, 4, 3), (128, 32, 64, 8, 3)],
    4: [(32, 16, 32, 4, 2), (64, 32, 32, 8, 2)],
}
LIMIT = (1 << 31) - 256  # indices up to the end of the last tile are 32-bit: 64-bit divisions are slow
TILES = 4  # of the weight's gradient on each multiprocessor, at least


def _configs(tiles: dict[int, list[tuple]]) -> Callable[[dict, Chip], list[Config]]:
    def configs(call: dict, chip: Chip) -> list[Config]:
        most = max(16, next_power_of_2(call["outs"]))
        fitting = [(min(most, tile[0]), *tile[1:]) for tile in tiles[call["x_ptr"].dtype.itemsize]]
        return [dict(zip(NAMES, tile, strict=True)) for tile in dict.fromkeys(fitting)]

    return configs


@triton.jit
def _offset(p, channel, form, steps):
    """The offsets of windows of channels in an array with these strides of image, channel, row and column."""
    size = form[2] * form[3]
    row, column = p % size // form[3], p % size % form[3]
    window = (p // size).to(tl.int64) * steps[0] + row.to(tl.int64) * steps[2] + column * steps[3]
    return window + channel.to(tl.int64) * steps[1]


@triton.jit
def _read(
    x_ptr, k, p, count, group, form, strides, padding, dilation, channels,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr,
):
    """A tile of the matrix of windows, its rows k and columns p; one of these is (n, 1), the other (1, m)."""
    # Shapes: x (N, groups * channels, H, W)
    size = form[0] * form[1]
    pixels = form[2] * form[3]
    row = p % pixels // form[3] * strides[0] - padding[0]
    column = p % pixels % form[3] * strides[1] - padding[1]
    image = (p // pixels).to(tl.int64) * form[4] + group * channels
    c = k // (KERNEL_H * KERNEL_W)
    down, right = k // KERNEL_W % KERNEL_H * dilation[0], k % KERNEL_W * dilation[1]
    inside = (p < count) & (c < channels)
    inside = inside & (row + down >= 0) & (row + down < form[0])
    inside = inside & (column + right >= 0) & (column + right < form[1])
    at = (image * size + row * form[1] + column) + (c * size + down * form[1] + right)
    return tl.load(x_ptr + at, mask=inside, other=0.0)


@tuned(_configs(FORWARD), key=("count", "channels", "outs"))
@triton.jit
def _forward(
    x_ptr, w_ptr, bias_ptr, y_ptr, steps, form, strides, padding, dilation, count, channels, outs,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """BLOCK_P windows of all images, BLOCK_O channels of the result.

    Args:
        steps: the strides of y.
        form: the height and width of x, the rows and columns of y, the channels of x in all groups.
        channels, outs: of a group of x, and of y.
    """
    # Shapes: x (N, groups * channels, H, W); w (groups * outs, channels, KERNEL_H, KERNEL_W);
    # bias (groups * outs,); y (N, groups * outs, rows, columns)
    blocks = tl.cdiv(outs, BLOCK_O)
    tiles = tl.cdiv(count, BLOCK_P) * blocks
    group, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    p = tile // blocks * BLOCK_P + tl.arange(0, BLOCK_P)[None, :]
    o = tile % blocks * BLOCK_O + tl.arange(0, BLOCK_O)[:, None]
    length = channels * KERNEL_H * KERNEL_W
    channel = group * outs + o
    total = tl.zeros((BLOCK_O, BLOCK_P), tl.float32)
    for start in range(0, length, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = (o < outs) & (k[None, :] < length)
        w = tl.load(w_ptr + channel.to(tl.int64) * length + k[None, :], mask=inside, other=0.0)
        x = _read(
            x_ptr, k[:, None], p, count, group, form, strides, padding, dilation, channels, KERNEL_H, KERNEL_W
        )
        total = tl.dot(w, x, total, input_precision=PRECISION)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + channel, mask=o < outs, other=0.0).to(tl.float32)
    at = _offset(p, channel, form, steps)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=(p < count) & (o < outs))


@tuned(_configs(WEIGHT), key=("count", "channels", "outs"))
@triton.jit
def _weight(
    x_ptr, dy_ptr, partials_ptr, steps, form, strides, padding, dilation, count, windows, channels, outs,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """The sum of dy x^T over this number of windows, for BLOCK_O channels of dy and BLOCK_K taps."""
    # Shapes: x (N, groups * channels, H, W); dy (N, groups * outs, rows, columns);
    # partials (parts, groups * outs, channels, KERNEL_H, KERNEL_W)
    length = channels * KERNEL_H * KERNEL_W
    blocks = tl.cdiv(outs, BLOCK_O)
    tiles = tl.cdiv(length, BLOCK_K) * blocks
    group, tile, part = tl.program_id(0) // tiles, tl.program_id(0) % tiles, tl.program_id(1)
    k = tile // blocks * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    o = tile % blocks * BLOCK_O + tl.arange(0, BLOCK_O)[:, None]
    channel = group * outs + o
    end = tl.minimum(count, (part + 1) * windows)
    total = tl.zeros((BLOCK_O, BLOCK_K), tl.float32)
    for start in range(part * windows, end, BLOCK_P):
        p = start + tl.arange(0, BLOCK_P)
        at = _offset(p[None, :], channel, form, steps)
        dy = tl.load(dy_ptr + at, mask=(p[None, :] < end) & (o < outs), other=0.0)
        x = _read(
            x_ptr, k, p[:, None], end, group, form, strides, padding, dilation, channels, KERNEL_H, KERNEL_W
        )
        total = tl.dot(dy, x, total, input_precision=PRECISION)
    at = (part.to(tl.int64) * (tl.num_programs(0) // tiles) * outs + channel) * length + k
    tl.store(partials_ptr + at, total, mask=(o < outs) & (k < length))


def _arguments(x: RawArray, y: RawArray, form: Geometry) -> tuple[tuple, dict]:
    """Returns the arguments of both kernels after their arrays, and their compile-time arguments."""
    padding = tuple([before for before, _ in form.padding])
    shape = (*form.size, *form.out, x.shape[1])
    meta = {"KERNEL_H": form.kernel[0], "KERNEL_W": form.kernel[1], "PRECISION": PRECISION}
    return (strides_of(y), shape, form.stride, padding, form.dilation, len(x) * math.prod(form.out)), meta


def _convolve(x: RawArray, w: RawArray, bias: RawArray | None, y: RawArray, form: Geometry) -> None:
    """See `fused_ops.convolution`."""
    arguments, meta = _arguments(x, y, form)
    count, channels, outs = arguments[-1], w.shape[1], len(w) // form.groups
    if not count:
        return

    def grid(chosen):
        tiles = cdiv(count, chosen["BLOCK_P"]) * cdiv(outs, chosen["BLOCK_O"])
        return (tiles * form.groups,)

    launch(_forward, grid, x, w, bias, y, *arguments, channels, outs, **meta)


def _weight_gradient(x: RawArray, dy: RawArray, shape: tuple[int, ...], form: Geometry) -> RawArray:
    arguments, meta = _arguments(x, dy, form)
    count, channels, outs, k = arguments[-1], shape[1], shape[0] // form.groups, math.prod(shape[1:])
    tiles = cdiv(outs, 64) * cdiv(k, 64) * form.groups
    windows = max(cdiv(count * tiles, TILES * chip().multiprocessors), 256)
    partials = np.empty((cdiv(count, windows), math.prod(shape)), np.float32, like=x)

    def grid(chosen):
        tiles = cdiv(k, chosen["BLOCK_K"]) * cdiv(outs, chosen["BLOCK_O"])
        return tiles * form.groups, len(partials)

    launch(_weight, grid, x, dy, partials, *arguments, windows, channels, outs, **meta)
    return column_sums(partials, x.dtype).reshape(shape)


def _bias_gradient(dy: RawArray) -> RawArray:
    return np.sum(dy, axis=(0, 2), dtype=np.float32).astype(dy.dtype)


register("cuda", require_dtypes, _convolve, _weight_gradient, _bias_gradient, LIMIT)
