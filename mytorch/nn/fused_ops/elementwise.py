"""What kernels on the CPU and on the GPU share that treat every element alike: they run over flat memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Order = tuple[int, ...] | None


def memory_order(x: Any) -> Order:
    """The dims from the longest stride to the shortest; None if they are in order."""
    if x.flags.c_contiguous:
        return None
    return tuple(sorted(range(x.ndim), key=lambda d: -abs(x.strides[d])))


def flat(x: Any, order: Order) -> Any:
    """The elements side by side, the dims in this order: a view if they lie so in memory, else a copy."""
    return np.ascontiguousarray(x if order is None else x.transpose(order), like=x).reshape(-1)


def unflat(row: Any, shape: Sequence[int], order: Order) -> Any:
    """The array of this shape whose `flat` is the row: its strides are in the order of those of the input."""
    if order is None:
        return row.reshape(shape)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return row.reshape([shape[d] for d in order]).transpose(inverse)


def unary(x: Any, forward: Callable, backward: Callable, *numbers: Any, keep_result: bool = False) -> tuple:
    """The result and the vjp of a function of each element.

    Args:
        x: floats of any shape and strides.
        forward: `forward(x, *numbers, y)` writes y; all arrays are flat and contiguous.
        backward: `backward(kept, g, *numbers, d)` writes d, the gradient of x for that of y, g.
        numbers: what else they get.
        keep_result: backward is given y; without it, x.
    """
    shape, order = x.shape, memory_order(x)
    kept = flat(x, order)
    y = np.empty_like(kept)
    forward(kept, *numbers, y)
    kept = y if keep_result else kept

    def grad(g):
        d = np.empty_like(kept)
        backward(kept, flat(g, order), *numbers, d)
        return unflat(d, shape, order)

    return unflat(y, shape, order), grad


def gated(x: Any, dim: int, forward: Callable, backward: Callable, *numbers: Any) -> tuple:
    """The result and the vjp of a function of two elements, one from each half of a dim.

    Args:
        forward: `forward(x, *numbers, y)` writes y, (rows, n), for x, (rows, 2, n); all are contiguous.
        backward: `backward(x, g, *numbers, d)` writes d, the gradient of x for that of y, g.
    """
    shape, n = (*x.shape[:dim], x.shape[dim] // 2, *x.shape[dim + 1 :]), math.prod(x.shape[dim:]) // 2
    x_shape = x.shape
    x = np.ascontiguousarray(x, like=x).reshape(math.prod(x.shape[:dim]), 2, n)
    y = np.empty((x.shape[0], n), x.dtype, like=x)
    forward(x, *numbers, y)

    def grad(g):
        d = np.empty_like(x)
        backward(x, np.ascontiguousarray(g, like=g).reshape(y_shape), *numbers, d)
        return d.reshape(x_shape)

    y_shape = y.shape
    return y.reshape(shape), grad


def rows_of_features(x: Any, shape: Sequence[int]) -> Any:
    """An array, broadcast to (..., T, D), as (L, M, T, D) of any strides, but its features side by side."""
    x = np.broadcast_to(x, shape)
    if x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
        x = np.ascontiguousarray(x, like=x)
    first, *others = shape[:-2] or (1,)
    return x.reshape(first, math.prod(others), *shape[-2:])
