"""
Sums over contiguous memory for the kernels of normalization, and how their arguments are prepared.

The mean of numbers with a common offset is wrong by some roundings of it, maybe by more than their standard
deviation. Their mean distance from it, summed with the squares, corrects both mean and variance.
"""

from __future__ import annotations

import numpy as np

from ....backends.jit import routine
from ...functional.composite import Unsupported
from .in_order import minus

SINGLE = np.dtype(np.float32)
ZERO, ONE = np.float32(0), np.float32(1)
_BLOCK = 4096  # elements that are summed in float32, in vector registers; sums of blocks are added in float64


@routine
def sum_of(x):
    """The sum of a vector, in float64."""
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, part = x[start : start + _BLOCK], ZERO
        for i in range(block.size):
            part += block[i]
        total += part
    return total


@routine
def distances_of(x, mean):
    """The sums of x - mean and of its squares, in float64."""
    total, squares = 0.0, 0.0
    for start in range(0, x.size, _BLOCK):
        block, part, part_squares = x[start : start + _BLOCK], ZERO, ZERO
        for i in range(block.size):
            distance = minus(block[i], mean)
            part += distance
            part_squares += distance * distance
        total += part
        squares += part_squares
    return total, squares


@routine
def corrected(mean, distances, squares, n):
    """The mean and the variance of n numbers, from the sums of their distances from nearly the mean.

    Source: Chan, Golub & LeVeque, "Algorithms for Computing the Sample Variance", 1983, equation 1.7,
        https://doi.org/10.1080/00031305.1983.10483115
    """
    shift = distances / n
    variance = squares / n - shift * shift
    if shift != shift:  # of inf, whose mean is inf
        return mean, np.float32(variance)
    return np.float32(mean + shift), np.float32(ZERO if variance < ZERO else variance)


@routine
def add(x, y, out):
    """out = x + y, for vectors."""
    for i in range(out.size):
        out[i] = x[i] + y[i]


@routine
def scaled(x, mean, scale, shift, out):
    """out = (x - mean) scale + shift"""
    for i in range(out.size):
        out[i] = (x[i] - mean) * scale + shift


@routine
def weight_gradients(dy, x, mean, rstd):
    """The gradients of weight and bias: the sums of dy x_hat and of dy."""
    dweight, dbias = ZERO, ZERO
    for i in range(dy.size):
        dweight += dy[i] * ((x[i] - mean) * rstd)
        dbias += dy[i]
    return dweight, dbias


@routine
def input_gradient(dy, x, weight, mean, rstd, mean_dxhat, mean_d, dx):
    """dx = rstd (d - mean_d - x_hat mean_dxhat) with d = dy weight."""
    for i in range(dx.size):
        dx[i] = (dy[i] * weight - mean_d - (x[i] - mean) * rstd * mean_dxhat) * rstd


def contiguous(x: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Returns x in C order and in this shape, or an array without elements for None.

    The result is writeable: for read-only arrays Numba would compile the kernel a second time.
    """
    if x is None:
        return np.empty((0,) * len(shape), SINGLE)
    flags = x.flags
    return (x if flags.c_contiguous and flags.writeable else x.copy()).reshape(shape)


def parameters(
    weight: np.ndarray | None, bias: np.ndarray | None, n: int, like: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns weight and bias as vectors; ones and zeros for None."""
    weight = np.ones(n, SINGLE, like=like) if weight is None else contiguous(weight, (n,))
    bias = np.zeros(n, SINGLE, like=like) if bias is None else contiguous(bias, (n,))
    return weight, bias


def require_single(*arrays: np.ndarray | None) -> None:
    """Raises `Unsupported` unless all arrays that aren't None are float32."""
    for a in arrays:
        if a is not None and a.dtype != SINGLE:
            raise Unsupported(f"the CPU's kernels compute in float32: none for {a.dtype}")
