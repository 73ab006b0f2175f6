"""Casts and multiplications that also check for inf and NaN."""

from __future__ import annotations

import numpy as np

from ....backends.jit import device, kernel, prange
from .half import bits_of, downcast_like, require_dtypes, upcast

__all__ = ["cast_and_check", "require_dtypes", "unscale_and_check"]

LARGEST = np.float32(np.finfo(np.float32).max)
BLOCK = 1 << 14


def cast_and_check(source: np.ndarray, out: np.ndarray, found_inf: np.ndarray) -> None:
    """out <- source; found_inf <- 1 if an element of out is not finite (see `fused_ops.cast`)."""
    if _cast(bits_of(source), bits_of(out)):
        found_inf[...] = 1


def unscale_and_check(grad: np.ndarray, inv_scale: float, found_inf: np.ndarray) -> None:
    """grad *= inv_scale; found_inf <- 1 if an element is not finite then (see `fused_ops.cast`)."""
    if _unscale(bits_of(grad), np.float32(inv_scale)):
        found_inf[...] = 1


@device
def _not_finite(x):
    return np.int32(not abs(upcast(x)) <= LARGEST)


@kernel
def _cast(source, out):
    """Returns the number of elements of out that are inf or NaN."""
    total = 0
    for k in prange((source.size + BLOCK - 1) // BLOCK):
        first, last = k * BLOCK, min(source.size, (k + 1) * BLOCK)
        x, y, bad = source[first:last], out[first:last], np.int32(0)
        for i in range(x.size):
            value = downcast_like(upcast(x[i]), out[0])
            y[i] = value
            bad += _not_finite(value)
        total += bad
    return total


@kernel
def _unscale(grad, inv_scale):
    """Returns the number of elements of grad that are inf or NaN."""
    total = 0
    for k in prange((grad.size + BLOCK - 1) // BLOCK):
        g, bad = grad[k * BLOCK : min(grad.size, (k + 1) * BLOCK)], np.int32(0)
        for i in range(g.size):
            value = downcast_like(upcast(g[i]) * inv_scale, grad[0])
            g[i] = value
            bad += _not_finite(value)
        total += bad
    return total
