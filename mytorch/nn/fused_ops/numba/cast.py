"""Casts and multiplications that look for inf and NaN on the way."""

from __future__ import annotations

import numpy as np

from ....backends.jit import device, kernel, prange
from .half import bits_of, narrow_like, require_dtypes, widen

__all__ = ["cast_and_check", "require_dtypes", "unscale_and_check"]

LARGEST = np.float32(np.finfo(np.float32).max)
BLOCK = 1 << 14


def cast_and_check(source: np.ndarray, out: np.ndarray, found_inf: np.ndarray) -> None:
    """out <- source; found_inf <- 1 if a number of out is not finite (see `fused_ops.cast`)."""
    if _cast(bits_of(source), bits_of(out)):
        found_inf[...] = 1


def unscale_and_check(grad: np.ndarray, inv_scale: float, found_inf: np.ndarray) -> None:
    """grad *= inv_scale; found_inf <- 1 if a number of it is not finite then (see `fused_ops.cast`)."""
    if _unscale(bits_of(grad), np.float32(inv_scale)):
        found_inf[...] = 1


@device
def _is_bad(x):
    return np.int32(not abs(widen(x)) <= LARGEST)


@kernel
def _cast(source, out):
    """How many numbers of out are inf or NaN."""
    total = 0
    for k in prange((source.size + BLOCK - 1) // BLOCK):
        first, last = k * BLOCK, min(source.size, (k + 1) * BLOCK)
        x, y, bad = source[first:last], out[first:last], np.int32(0)
        for i in range(x.size):
            value = narrow_like(widen(x[i]), out[0])
            y[i] = value
            bad += _is_bad(value)
        total += bad
    return total


@kernel
def _unscale(grad, inv_scale):
    """How many numbers of grad are inf or NaN."""
    total = 0
    for k in prange((grad.size + BLOCK - 1) // BLOCK):
        g, bad = grad[k * BLOCK : min(grad.size, (k + 1) * BLOCK)], np.int32(0)
        for i in range(g.size):
            value = narrow_like(widen(g[i]) * inv_scale, grad[0])
            g[i] = value
            bad += _is_bad(value)
        total += bad
    return total
