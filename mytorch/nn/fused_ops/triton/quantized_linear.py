"""
Linear layers with quantized weights on the GPU.

For a few rows of x the time is that of reading the codes: each program multiplies some rows of the weight
with one of x, in float32, and the second row of x finds the codes in the cache. For more rows of x the weight
is dequantized in one pass, and cuBLAS multiplies.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ....backends.blas import product, rows
from ....backends.device import RawArray
from ...functional.quantized_linear import quantized_linear, vjps
from .launch import launch, require_dtypes
from .moments import contiguous
from .sizes import cdiv

FEW = 4  # rows of x that a kernel multiplies
ROWS, BLOCKS = 4, 16  # of the weight at a time: 2,048 codes, 16 for each thread


@triton.jit
def _dequantize(
    codes_ptr, scales_ptr, offsets_ptr, row, block, inside, blocks,
    FOUR_BITS: tl.constexpr, HIGH: tl.constexpr, WIDTH: tl.constexpr,
):
    """The weight (rows, blocks, WIDTH): of 4 bits, the first or, if HIGH, the second 16 of each block."""
    # Shapes: codes (n, blocks, WIDTH); scales, offsets (n, blocks)
    at = row.to(tl.int64) * blocks + block
    column = tl.arange(0, WIDTH)[None, None, :]
    codes = tl.load(codes_ptr + at * WIDTH + column, mask=inside, other=0)
    w = codes.to(tl.float32)
    if FOUR_BITS:
        w = (codes >> 4 if HIGH else codes & 15).to(tl.float32)
    scale = tl.load(scales_ptr + at, mask=inside, other=0).to(tl.float16, bitcast=True).to(tl.float32)
    if offsets_ptr is not None:
        offset = tl.load(offsets_ptr + at, mask=inside, other=0).to(tl.float16, bitcast=True)
        return w * scale + offset.to(tl.float32)
    return (w - 8 if FOUR_BITS else w) * scale


@triton.jit
def _multiply(
    codes_ptr, scales_ptr, offsets_ptr, x_ptr, bias_ptr, y_ptr, n, blocks,
    FOUR_BITS: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr,
):
    """ROWS numbers of a row of y."""
    # Shapes: codes (n, blocks, WIDTH); scales, offsets (n, blocks); x (rows, 32 * blocks); bias (n,);
    # y (rows, n)
    x_row = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCKS), tl.float32)
    for first in range(0, blocks, BLOCKS):
        block = first + tl.arange(0, BLOCKS)[None, :, None]
        inside = (row[:, None, None] < n) & (block < blocks)
        x = x_ptr + (x_row * blocks + block) * 32 + tl.arange(0, WIDTH)[None, None, :]
        w = _dequantize(codes_ptr, scales_ptr, offsets_ptr, row[:, None, None], block, inside, blocks,
                        FOUR_BITS, False, WIDTH)
        total += tl.sum(w * tl.load(x, mask=block < blocks, other=0.0).to(tl.float32), 2)
        if FOUR_BITS:
            w = _dequantize(codes_ptr, scales_ptr, offsets_ptr, row[:, None, None], block, inside, blocks,
                            FOUR_BITS, True, WIDTH)
            total += tl.sum(w * tl.load(x + 16, mask=block < blocks, other=0.0).to(tl.float32), 2)
    y = tl.sum(total, 1)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + row, mask=row < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + x_row * n + row, y.to(y_ptr.dtype.element_ty), mask=row < n)


@triton.jit
def _write_weight(
    codes_ptr, scales_ptr, offsets_ptr, weight_ptr, n, blocks,
    FOUR_BITS: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr,
):
    """A tile of the weight, in the dtype of that."""
    # Shapes: codes (n, blocks, WIDTH); scales, offsets (n, blocks); weight (n, 32 * blocks)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None, None]
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)[None, :, None]
    inside = (row < n) & (block < blocks)
    out = weight_ptr + (row.to(tl.int64) * blocks + block) * 32 + tl.arange(0, WIDTH)[None, None, :]
    for high in tl.static_range(2 if FOUR_BITS else 1):
        w = _dequantize(codes_ptr, scales_ptr, offsets_ptr, row, block, inside, blocks,
                        FOUR_BITS, high, WIDTH)
        tl.store(out + 16 * high, w.to(weight_ptr.dtype.element_ty), mask=inside)


def _launch(kernel: JITFunction, grid: tuple[int, ...], weight: list, *args: RawArray | None) -> None:
    """Launches a kernel of the weight's codes, scales and offsets, and what else it takes."""
    four_bits = weight[0].dtype == np.uint8
    options = {"FOUR_BITS": four_bits, "WIDTH": 16 if four_bits else 32}
    launch(kernel, grid, *weight, *args, *weight[1].shape, **options, ROWS=ROWS, BLOCKS=BLOCKS, num_warps=4)


@quantized_linear.fused("cuda")
def _quantized_linear(x, codes, scales, offsets, bias):
    require_dtypes(x)
    n, blocks = scales.shape
    weight, x_shape = contiguous(codes, scales, offsets), x.shape
    x, added = contiguous(rows(x), bias)
    if x.shape[0] <= FEW:
        y = np.empty((x.shape[0], n), x.dtype, like=x)
        if y.size:
            grid = cdiv(n, ROWS), x.shape[0]
            _launch(_multiply, grid, weight, x, added, y)
    else:
        dense = np.empty((n, 32 * blocks), x.dtype, like=x)
        _launch(_write_weight, (cdiv(n, ROWS), cdiv(blocks, BLOCKS)), weight, dense)
        y = product(x, dense.T)
        if bias is not None:
            y += bias
    return np.reshape(y, (*x_shape[:-1], n)), vjps(x_shape, codes, scales, offsets, bias)
