"""
Linear layers on the GPU: products by cuBLAS, each followed by one kernel for bias and activation.

Backward starts from z = x W^T + b, as PyTorch's does: z overwrites the product, while the derivative would
take as many bytes again and be rounded a second time. For relu the result is enough.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....autograd import is_grad_enabled
from ....backends.blas import add_product, rows
from ....backends.device import RawArray
from ...functional.linear import linear, linear_activation
from ..linear import require_shapes, vjps
from .activations import sigmoid32, silu_derivative
from .elementwise import load32, row_launcher, store, tile
from .gelu import cdf, slope
from .launch import chip, launch, require_dtypes
from .moments import column_sums, contiguous, dtypes_of
from .sizes import cdiv, next_power_of_2

_TILE, _BLOCK = 2048, 256  # elements and columns of backward's tile: 16 elements for each of 128 threads
_PROGRAMS = 8  # of backward on each multiprocessor, at least, if there are enough rows


@triton.jit
def _forward(
    z_ptr, bias_ptr, y_ptr, rows, n, ACTIVATION: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = f(z + bias), which overwrites z if y is None; else z + bias does, if there is a bias."""
    # Shapes: z, y (rows, n); bias (n,)
    row, column, inside = tile(rows, n, ROWS, BLOCK)
    at = row * n + column
    z = load32(z_ptr, at, inside)
    if bias_ptr is not None:  # rounded as it is stored: backward starts from that
        z = (z + load32(bias_ptr, column, column < n)).to(z_ptr.dtype.element_ty).to(tl.float32)
    if ACTIVATION == "relu":
        y = tl.where(z <= 0, 0.0, z)
    elif ACTIVATION == "silu":
        y = z * sigmoid32(z)
    elif ACTIVATION is None:
        y = z
    else:
        y = z * cdf(z, ACTIVATION == "gelu")
    if y_ptr is None:
        store(z_ptr, at, y, inside)
    else:
        store(y_ptr, at, y, inside)
        if bias_ptr is not None:
            store(z_ptr, at, z, inside)


@triton.jit
def _backward(
    dy_ptr, z_ptr, dz_ptr, partials_ptr, rows, n, height, ACTIVATION: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dz = dy f'(z) for `height` rows of BLOCK columns, and their sums; without f, only the sums."""
    # Shapes: dy, z, dz (rows, n); partials (rows / height, n)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    part = tl.program_id(1)
    end = tl.minimum(rows, (part + 1) * height)
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(part * height, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside, at = (row < end) & (column < n), row.to(tl.int64) * n + column
        dz = load32(dy_ptr, at, inside)
        if ACTIVATION is not None:
            z = load32(z_ptr, at, inside)
            if ACTIVATION == "relu":
                dz = tl.where(z <= 0, 0.0, dz)
            elif ACTIVATION == "silu":
                dz *= silu_derivative(z, sigmoid32(z))
            else:
                dz *= slope(z, cdf(z, ACTIVATION == "gelu"), ACTIVATION == "gelu")
            store(dz_ptr, at, dz, inside)
        sums += dz
    if partials_ptr is not None:
        at = part.to(tl.int64) * n + column
        tl.store(partials_ptr + at, tl.sum(sums, axis=0, keep_dims=True), mask=column < n)


def _gradient(
    dy: RawArray, z: RawArray | None, activation: str | None, summed: bool
) -> tuple[RawArray, RawArray | None]:
    """Returns dz = dy f'(z), or dy without f, and if `summed`, sums of its columns over parts of the rows."""
    (dy,) = contiguous(dy)
    m, n = dy.shape
    block = min(_BLOCK, next_power_of_2(max(n, 1)))
    rows, blocks = _TILE // block, cdiv(n, block)
    height = cdiv(m * blocks, _PROGRAMS * chip().multiprocessors)
    height = max(cdiv(height, rows), 1) * rows
    dz = dy if z is None else np.empty_like(z)
    partials = np.empty((cdiv(m, height), n), np.float32, like=dy) if summed else None
    launch(_backward, (blocks, cdiv(m, height)), dy, z, dz, partials, m, n, height,
           ACTIVATION=activation, ROWS=rows, BLOCK=block, num_warps=4)
    return dz, partials


def _variant(x: RawArray, weight: RawArray, bias: RawArray | None, activation: str | None = None) -> tuple:
    require_dtypes(x, weight, bias)
    require_shapes(weight, bias)
    x_shape, x = x.shape, rows(x)
    z = np.empty((x.shape[0], weight.shape[0]), x.dtype, like=x)
    add_product(x, weight.T, z, 0)
    separate = activation not in (None, "relu") and is_grad_enabled()
    y = np.empty_like(z) if separate else z
    if bias is not None or activation is not None:
        start = row_launcher(_forward, ACTIVATION=activation)
        start(*z.shape, z, *contiguous(bias), y if separate else None)
    saved = None if activation is None else z
    (dtype,) = dtypes_of(bias)

    def backward(dy):
        if saved is None:
            return dy, lambda: column_sums(_gradient(dy, None, None, True)[1], dtype)
        dz, partials = _gradient(dy, saved, activation, dtype is not None)
        return dz, lambda: column_sums(partials, dtype)

    y = y.reshape(*x_shape[:-1], weight.shape[0])
    return y, vjps(x, weight, bias, x_shape, backward)


linear.fused("cuda")(_variant)
linear_activation.fused("cuda")(_variant)
