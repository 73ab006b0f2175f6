"""Elementwise kernels on the CPU and on the GPU: they run over flat memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...backends.device import RawArray
from ...backends.memory_order import flat, memory_order, unflat


def unary(
    x: RawArray, forward: Callable, backward: Callable, *scalars: float, save_result: bool = False
) -> tuple[RawArray, Callable]:
    """Returns the result and the vjp of a function of each element.

    Args:
        x: floats of any shape and strides.
        forward: `forward(x, *scalars, y)` writes y; all arrays are flat and contiguous.
        backward: `backward(saved, dy, *scalars, dx)` writes dx.
        save_result: y is saved for backward; else x.
    """
    shape, order = x.shape, memory_order(x)
    saved = flat(x, order)
    y = np.empty_like(saved)
    forward(saved, *scalars, y)
    saved = y if save_result else saved

    def vjp(dy):
        dx = np.empty_like(saved)
        backward(saved, flat(dy, order), *scalars, dx)
        return unflat(dx, shape, order)

    return unflat(y, shape, order), vjp


def gated(
    x: RawArray, dim: int, forward: Callable, backward: Callable, *scalars: float
) -> tuple[RawArray, Callable]:
    """Returns the result and the vjp of a function of two elements, one from each half of a dim.

    Args:
        forward: `forward(x, *scalars, y)` writes y, (rows, n), for x, (rows, 2, n); all are contiguous.
        backward: `backward(x, dy, *scalars, dx)` writes dx.
    """
    shape, n = (*x.shape[:dim], x.shape[dim] // 2, *x.shape[dim + 1 :]), math.prod(x.shape[dim:]) // 2
    x_shape = x.shape
    x = np.ascontiguousarray(x, like=x).reshape(math.prod(x.shape[:dim]), 2, n)
    y = np.empty((x.shape[0], n), x.dtype, like=x)
    forward(x, *scalars, y)
    y_shape = y.shape

    def vjp(dy):
        dx = np.empty_like(x)
        backward(x, np.ascontiguousarray(dy, like=dy).reshape(y_shape), *scalars, dx)
        return dx.reshape(x_shape)

    return y.reshape(shape), vjp


def rows_of_features(x: RawArray, shape: Sequence[int]) -> RawArray:
    """Returns an array, broadcast to (..., T, D), as (L, M, T, D), its features adjacent."""
    x = np.broadcast_to(x, shape)
    if x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
        x = np.ascontiguousarray(x, like=x)
    first, *others = shape[:-2] or (1,)
    return x.reshape(first, math.prod(others), *shape[-2:])
