"""
Linear layers on the GPU: the products are cuBLAS's, and one kernel does what comes after each of them.

Backward starts from z = x W^T + b, as PyTorch's does: the product's result becomes z in place, where the
slope would be as many bytes more to write, and rounded a second time. relu's sign is in its result, which is
there anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from ....autograd import is_grad_enabled
from ....backends.blas import add_product, rows
from ...functional.linear import linear, linear_activation
from ..linear import gradients, require_shapes
from .activations import sigmoid32, silu_slope
from .elementwise import row_starter, single, store, tile
from .gelu import cdf, slope
from .launch import chip, launch, require_dtypes
from .moments import column_sums, contiguous, dtypes_of

_TILE, _BLOCK = 2048, 256  # elements and columns of backward's tile: 16 elements for each of 128 threads
_PROGRAMS = 8  # for each multiprocessor, as which backward runs at least if there are rows enough


@triton.jit
def _forward(
    z_ptr, bias_ptr, y_ptr, rows, n, ACTIVATION: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """y = f(z + bias), in z's place if y is None; else z + bias is there, if there is a bias."""
    row, column, inside = tile(rows, n, ROWS, BLOCK)
    at = row * n + column
    z = single(z_ptr, at, inside)
    if bias_ptr is not None:  # rounded, as it is kept: backward has the slope of the very point
        z = (z + single(bias_ptr, column, column < n)).to(z_ptr.dtype.element_ty).to(tl.float32)
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
    g_ptr, z_ptr, d_ptr, parts_ptr, rows, n, share, ACTIVATION: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """d = g f'(z) for `share` rows of BLOCK columns, and the sums of these columns; without f, only of g."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    part = tl.program_id(1)
    end = tl.minimum(rows, (part + 1) * share)
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(part * share, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside, at = (row < end) & (column < n), row.to(tl.int64) * n + column
        d = single(g_ptr, at, inside)
        if ACTIVATION is not None:
            z = single(z_ptr, at, inside)
            if ACTIVATION == "relu":
                d = tl.where(z <= 0, 0.0, d)
            elif ACTIVATION == "silu":
                d *= silu_slope(z, sigmoid32(z))
            else:
                d *= slope(z, cdf(z, ACTIVATION == "gelu"), ACTIVATION == "gelu")
            store(d_ptr, at, d, inside)
        sums += d
    if parts_ptr is not None:
        at = part.to(tl.int64) * n + column
        tl.store(parts_ptr + at, tl.sum(sums, axis=0, keep_dims=True), mask=column < n)


def _gradient(g: Any, z: Any | None, activation: str | None, summed: bool) -> tuple[Any, Any | None]:
    """g f'(z), or g itself without f, and sums of its columns over parts of the rows if they are asked for.

    All are matrices.
    """
    (g,) = contiguous(g)
    m, n = g.shape
    block = min(_BLOCK, triton.next_power_of_2(max(n, 1)))
    height, blocks = _TILE // block, triton.cdiv(n, block)
    share = triton.cdiv(m * blocks, _PROGRAMS * chip().multiprocessors)
    share = max(triton.cdiv(share, height), 1) * height
    d = g if z is None else np.empty_like(z)
    parts = np.empty((triton.cdiv(m, share), n), np.float32, like=g) if summed else None
    launch(_backward, (blocks, triton.cdiv(m, share)), g, z, d, parts, m, n, share,
           ACTIVATION=activation, ROWS=height, BLOCK=block, num_warps=4)  # fmt: skip
    return d, parts


def _variant(x: Any, weight: Any, bias: Any | None, activation: str | None = None) -> tuple:
    require_dtypes(x, weight, bias)
    require_shapes(weight, bias)
    x_shape, x = x.shape, rows(x)
    z = np.empty((x.shape[0], weight.shape[0]), x.dtype, like=x)
    add_product(x, weight.T, z, 0)
    apart = activation not in (None, "relu") and is_grad_enabled()
    y = np.empty_like(z) if apart else z
    if bias is not None or activation is not None:
        start = row_starter(_forward, ACTIVATION=activation)
        start(*z.shape, z, *contiguous(bias), y if apart else None)
    kept = None if activation is None else z
    (dtype,) = dtypes_of(bias)

    def backward(g):
        if kept is None:
            return g, lambda: column_sums(_gradient(g, None, None, True)[1], dtype)
        d, parts = _gradient(g, kept, activation, dtype is not None)
        return d, lambda: column_sums(parts, dtype)

    y = np.reshape(y, (*x_shape[:-1], weight.shape[0]))
    return y, gradients(x, weight, bias, x_shape, backward)


linear.fused("cuda")(_variant)
linear_activation.fused("cuda")(_variant)
