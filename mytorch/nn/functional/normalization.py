"""The forward and backward pass that all norms share; normalize and local_response_norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...backends.blas import column_sums, dots, row_sums
from ...backends.device import RawArray
from ...backends.dtypes import is_floating_point, is_half
from ...core.tensor import Tensor
from ...ops import cat, norm
from .activations import require_float

# The derivation, once for all norms. A statistic is taken over some elements: a row, or a channel.
# With x_hat = (x - mean) rstd and d the gradient of x_hat,
#
#     dx = rstd (d - mean(d) - x_hat mean(d x_hat)).
#
# x_hat has mean 0 and variance 1 for every x, so dx lacks the two components of d that would change them.
# RMS norm subtracts no mean: its dx has no mean(d).


class Sums(NamedTuple):
    """Reductions over the elements of one statistic or parameter; results broadcast against the input.

    total: the sums of an array.
    dot: the sums of the product of two arrays.
    """

    total: Callable[[RawArray], RawArray]
    dot: Callable[[RawArray, RawArray], RawArray]


ROWS = Sums(row_sums, lambda a, b: dots("ij->i", a, b)[:, None])  # of (M, n)
COLUMNS = Sums(column_sums, lambda a, b: column_sums(a * b))  # of (M, n)


def standardize(x: RawArray, eps: float, centred: bool = True) -> tuple[RawArray, Callable]:
    """Returns the rows of a matrix with mean 0 and variance 1, and their vjp.

    Without `centred` the mean is not subtracted, and the rows have a mean square of 1.
    """
    inv_n = x.dtype.type(1 / max(x.shape[1], 1))
    x_hat = x - ROWS.total(x) * inv_n if centred else x.copy()
    rstd = 1 / np.sqrt(ROWS.dot(x_hat, x_hat) * inv_n + x.dtype.type(eps))
    x_hat *= rstd
    return x_hat, x_hat_vjp(x_hat, rstd, ROWS, inv_n, centred)


def x_hat_vjp(x_hat: RawArray, rstd: RawArray, sums: Sums, inv_n: RawArray, centred: bool = True) -> Callable:
    """Returns the vjp of x_hat, which overwrites the gradient that it gets; inv_n is 1 / n."""

    def vjp(d):
        mean_dxhat = sums.dot(d, x_hat) * inv_n
        if centred:
            d -= sums.total(d) * inv_n
        d -= x_hat * mean_dxhat
        d *= rstd
        return d

    return vjp


def scale_and_shift(
    x_hat: RawArray, weight: RawArray, bias: RawArray, vjp: Callable, sums: Sums, shape: tuple, size: tuple
) -> tuple:
    """Returns x_hat * weight + bias in `shape`, and the functions for dx, dweight and dbias.

    Args:
        x_hat: in a shape that weight and bias, which may be None, broadcast against.
        vjp: of x_hat.
        sums: over the elements of x_hat that share a weight.
        size: the shape of the parameters.
    """
    y = x_hat.copy() if weight is None else x_hat * weight
    if bias is not None:
        y += bias
    dims = x_hat.shape

    def dx(g):
        d = np.reshape(g, dims)
        return np.reshape(vjp(d.copy() if weight is None else d * weight), shape)

    def dweight(g):
        return np.reshape(sums.dot(np.reshape(g, dims), x_hat), size)

    def dbias(g):
        return np.reshape(sums.total(np.reshape(g, dims)), size)

    return np.reshape(y, shape), dx, dweight, dbias


def same_dtype(name: str, input: Tensor, key: str, other: Tensor | None) -> None:
    """Raises RuntimeError unless `other` is None, of the input's dtype, or float32 beside half precision."""
    if other is not None and other.dtype != input.dtype:
        if is_half(input.dtype) and other.dtype == np.float32:
            return
        raise RuntimeError(f"{name}(): mixed dtype: input is {input.dtype}, {key} is {other.dtype}")


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divides by a power of the mean square over `size` neighbouring channels, with zeros beyond the ends.

        y = x / (k + alpha / size * sum of x^2)^beta

    Args:
        input: (N, C, ...)

    Raises:
        ValueError: fewer than 3 dims.
        RuntimeError: size is not positive.
    Source: Krizhevsky, Sutskever & Hinton, "ImageNet Classification with Deep Convolutional Neural Networks",
        2012, section 3.3.
    """
    if input.ndim < 3:
        raise ValueError(
            f"local_response_norm(): expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if size <= 0:
        raise RuntimeError(f"local_response_norm(): size should be greater than zero, got {size}")
    if not is_floating_point(input.dtype) and input.dtype != np.int64:
        require_float(input, "local_response_norm")
    if not input.numel():
        return input
    channels, before, after = input.shape[1], size // 2, (size - 1) // 2
    square = input * input
    zeros = [square.new_zeros((input.shape[0], n, *input.shape[2:])) for n in (before, after)]
    padded = cat([zeros[0], square, zeros[1]], 1)
    total = sum((padded.narrow(1, i, channels) for i in range(1, size)), padded.narrow(1, 0, channels))
    mean = total / size if is_floating_point(input.dtype) else total // size
    return input / (mean * alpha + k) ** beta


def normalize(
    input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] | None = 1, eps: float = 1e-12
) -> Tensor:
    """Returns x / max(|x|, eps), with the p-norm of the vectors along one or several dims.

    Raises:
        RuntimeError: integers.
        IndexError: no such dim.
    """
    return input / norm(input, p, dim, True).clamp(min=eps)
