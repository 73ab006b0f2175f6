"""
Linear layers with quantized weights on the CPU.

A single row of x takes as long as reading the codes from memory: these become float32 in registers, and the
sum of a block's products is multiplied by its scale. Four rows of the weight are read at a time, far from
each other: four streams of memory, each of which is prefetched.

Several rows are worth products by OpenBLAS: each thread dequantizes some rows of the weight, which stay in
its cache, and multiplies x with them.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from ....backends.blas import rows
from ....backends.gemm import ONE, PLAIN, ROW_MAJOR, TRANSPOSED, get_blas_threads, set_blas_threads, sgemm
from ....backends.jit import kernel, prange, routine
from ....backends.lanes import AHEAD, fma, load, load_halves, load_int8, prefetch, splat, store, total
from ....backends.threads import get_num_threads
from ...functional.quantization import BLOCK
from ...functional.quantized_linear import quantized_linear, vjps
from .approximations import ZERO
from .half import upcast
from .memory import aligned, require_openblas
from .moments import SINGLE, require_single

TILE = 96  # rows of the weight that a thread takes at a time, for several rows of x
SCALES = 1 << 12  # of a tile, for a single row of x
EIGHT = np.float32(8)
NO_NUMBERS, NO_BITS = np.empty(0, np.float32), np.empty(0, np.uint16)


def _load(codes, address):
    """The codes of a block, of an array of codes of this type, as two times 16 numbers."""


@overload(_load, inline="always")
def _(codes, address):
    if codes.dtype == types.uint8:
        return lambda codes, address: load_halves(address)
    return lambda codes, address: (load_int8(address), load_int8(address + 16))


def _add(codes, address, low, high, scale, offset, acc):
    """acc + the product of a block of the weight with 32 numbers of x"""


@overload(_add, inline="always")
def _(codes, address, low, high, scale, offset, acc):
    def four_bits(codes, address, low, high, scale, offset, acc):
        first, second = load_halves(address)
        acc = fma(fma(first, splat(scale), splat(offset)), low, acc)
        return fma(fma(second, splat(scale), splat(offset)), high, acc)

    def eight_bits(codes, address, low, high, scale, offset, acc):
        products = fma(load_int8(address), low, splat(ZERO))
        return fma(splat(scale), fma(load_int8(address + 16), high, products), acc)

    return four_bits if codes.dtype == types.uint8 else eight_bits


@routine
def _upcast(bits, out):
    """out = float16 numbers, of which these are the bits"""
    for i in range(out.size):
        out[i] = upcast(bits[i])


@routine
def _scales_of(scales, offsets, four_bits, first, last, s, o):
    """s and o = scales and offsets of the blocks `first` to `last` - 1, vectors, as float32."""
    _upcast(scales[first:last], s)
    if offsets.size:
        _upcast(offsets[first:last], o)
    elif four_bits:
        for b in range(s.size):
            o[b] = -EIGHT * s[b]


@routine
def multiply(codes, scales, offsets, x, bias, y, share, shares):
    """y = W x + bias for a share of the rows of the weight: a tile at a time, whose scales stay in the cache.

    `codes` is (rows, bytes), `scales` and `offsets` are vectors.
    """
    width, blocks, four_bits = codes.shape[1], x.size // BLOCK, codes.shape[1] < x.size
    step, rows = width // max(1, blocks), max(32, SCALES // max(1, blocks) // 4 * 4)
    s = np.empty((rows, blocks), np.float32)
    o = np.empty_like(s) if four_bits else s
    start, stop = y.size * share // shares, y.size * (share + 1) // shares
    for first in range(start, stop, rows):
        last = min(stop, first + rows)
        count = (last - first) * blocks
        _scales_of(scales, offsets, four_bits, first * blocks, last * blocks,
                   s.reshape(-1)[:count], o.reshape(-1)[:count])
        base, end, quarter = codes.ctypes.data + first * width, last - first - 1, (last - first + 3) // 4
        for i in range(quarter):  # four rows of W; beyond the last one, that one again
            j, k, m = min(i + quarter, end), min(i + 2 * quarter, end), min(i + 3 * quarter, end)
            p, q, r, t = base + i * width, base + j * width, base + k * width, base + m * width
            a, b, c, d = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
            for block in range(blocks):
                low, high = load(x.ctypes.data + 128 * block), load(x.ctypes.data + 128 * block + 64)
                prefetch(p + AHEAD)
                prefetch(q + AHEAD)
                prefetch(r + AHEAD)
                prefetch(t + AHEAD)
                a = _add(codes, p, low, high, s[i, block], o[i, block], a)
                b = _add(codes, q, low, high, s[j, block], o[j, block], b)
                c = _add(codes, r, low, high, s[k, block], o[k, block], c)
                d = _add(codes, t, low, high, s[m, block], o[m, block], d)
                p, q, r, t = p + step, q + step, r + step, t + step
            y[first + i], y[first + j] = total(a), total(b)
            y[first + k], y[first + m] = total(c), total(d)
    if bias.size:
        for i in range(start, stop):
            y[i] += bias[i]


@kernel
def _multiply_row(codes, scales, offsets, x, bias, y, shares):
    """y = x W^T + bias for a single row x."""
    for share in prange(shares):
        multiply(codes, scales, offsets, x, bias, y, share, shares)


@kernel
def _multiply_rows(codes, scales, offsets, x, bias, y):
    """y = x W^T + bias for several rows of x."""
    (n, width), (m, columns) = codes.shape, x.shape
    blocks, four_bits = columns // BLOCK, width < columns
    step = width // max(1, blocks)
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    for tile in prange((n + TILE - 1) // TILE):
        first, last = TILE * tile, min(n, TILE * tile + TILE)
        s, o = np.empty((last - first) * blocks, np.float32), np.zeros((last - first) * blocks, np.float32)
        _scales_of(scales, offsets, four_bits, first * blocks, last * blocks, s, o)
        weight = aligned(TILE * columns)
        for b in range(s.size):  # of all rows of the tile
            low, high = _load(codes, codes.ctypes.data + first * width + b * step)
            scale, offset, out = splat(s[b]), splat(o[b]), weight.ctypes.data + 128 * b
            store(out, fma(low, scale, offset))
            store(out + 64, fma(high, scale, offset))
        sgemm(ROW_MAJOR, PLAIN, TRANSPOSED, m, last - first, columns, ONE, x.ctypes.data, columns,
              weight.ctypes.data, columns, ZERO, y.ctypes.data + 4 * first, n)
        weight[0] = ZERO  # its memory lives as long as it is used
        if bias.size:
            for row in range(m):
                for i in range(first, last):
                    y[row, i] += bias[i]
    set_blas_threads(before)


@quantized_linear.fused("cpu")
def _quantized_linear(x, codes, scales, offsets, bias):
    require_single(x)
    matrix = np.ascontiguousarray(rows(x))
    y = np.empty((matrix.shape[0], scales.shape[0]), SINGLE)
    bits = NO_BITS if offsets is None else np.ascontiguousarray(offsets).reshape(-1)
    weight = np.ascontiguousarray(codes), np.ascontiguousarray(scales).reshape(-1), bits
    added = NO_NUMBERS if bias is None else np.ascontiguousarray(bias)
    if matrix.shape[0] == 1:
        _multiply_row(*weight, matrix[0], added, y[0], get_num_threads())
    elif y.size:
        require_openblas()
        _multiply_rows(*weight, matrix, added, y)
    return np.reshape(y, (*x.shape[:-1], y.shape[1])), vjps(x.shape, codes, scales, offsets, bias)
