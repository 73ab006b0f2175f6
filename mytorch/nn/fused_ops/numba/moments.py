"""What the kernels of normalization share: sums along contiguous memory, and the arrays that they get."""

from __future__ import annotations

import numpy as np

from ....backends.jit import device
from ...functional.composite import Unsupported

SINGLE = np.dtype(np.float32)
ZERO, ONE = np.float32(0), np.float32(1)
_BLOCK = 4096  # so many numbers are added up in float32, in vector registers; such sums are added in float64


@device
def sum_of(x):
    """The sum of a vector, in float64."""
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, part = x[start : start + _BLOCK], ZERO
        for i in range(block.size):
            part += block[i]
        total += part
    return total


@device
def squares_of(x, mean):
    """The sum of the squared distances from `mean`, in float64."""
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, part = x[start : start + _BLOCK], ZERO
        for i in range(block.size):
            part += (block[i] - mean) * (block[i] - mean)
        total += part
    return total


@device
def add(x, y, out):
    """out = x + y, for vectors."""
    for i in range(out.size):
        out[i] = x[i] + y[i]


@device
def scaled(x, mean, scale, shift, out):
    """out = (x - mean) scale + shift"""
    for i in range(out.size):
        out[i] = (x[i] - mean) * scale + shift


@device
def sums_of(g, x, mean, rstd):
    """The sums of g x_hat and of g."""
    of_product, of_g = ZERO, ZERO
    for i in range(g.size):
        of_product += g[i] * ((x[i] - mean) * rstd)
        of_g += g[i]
    return of_product, of_g


@device
def gradient_of(g, x, weight, mean, rstd, along, level, out):
    """out = rstd (g weight - level - x_hat along), the gradient of x; see `normalization`."""
    for i in range(out.size):
        out[i] = (g[i] * weight - level - (x[i] - mean) * rstd * along) * rstd


def contiguous(x: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """x in C order and in this shape, or an array without elements for None.

    It can be written to even if nobody does: Numba would compile another kernel for arrays that can't.
    """
    if x is None:
        return np.empty((0,) * len(shape), SINGLE)
    flags = x.flags
    return (x if flags.c_contiguous and flags.writeable else x.copy()).reshape(shape)


def parameters(weight: np.ndarray | None, bias: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias as vectors; ones and zeros where there are none."""
    weight = np.ones(n, SINGLE) if weight is None else contiguous(weight, (n,))
    bias = np.zeros(n, SINGLE) if bias is None else contiguous(bias, (n,))
    return weight, bias


def require_single(*arrays: np.ndarray | None) -> None:
    """Raise `Unsupported` unless the arrays, or None, are float32."""
    for a in arrays:
        if a is not None and a.dtype != SINGLE:
            raise Unsupported(f"the CPU's kernels compute in float32: none for {a.dtype}")
