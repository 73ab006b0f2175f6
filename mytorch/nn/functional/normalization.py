"""layer_norm, rms_norm, add_layer_norm (of a sum), and the forward and backward pass that all norms share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...backends.blas import column_dots, column_sums, row_dots, row_sums
from ...backends.device import RawArray
from ...backends.dtypes import is_floating_point, is_half
from ...backends.memory_order import in_c_order
from ...core.tensor import Tensor
from ...ops import cat, contiguous, norm
from .composite import composite, require_float

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


ROWS = Sums(row_sums, row_dots)  # of (M, n)
COLUMNS = Sums(column_sums, column_dots)  # of (M, n)


def standardize(x: RawArray, eps: float, centred: bool = True) -> tuple[RawArray, Callable]:
    """Returns the rows of a matrix with mean 0 and variance 1, and their vjp.

    Without `centred` the mean is not subtracted, and the rows have a mean square of 1.
    """
    inv_n = x.dtype.type(1 / max(x.shape[1], 1))
    x_hat = x - ROWS.total(x) * inv_n if centred else x.copy()
    if centred:  # an offset that all numbers have is rounded in their mean, but no longer in their distances
        x_hat -= ROWS.total(x_hat) * inv_n
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
    y = x_hat.copy() if weight is None else in_c_order(x_hat * weight)
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


@composite(order=contiguous)
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes the last dims to mean 0 and variance 1, then scales and shifts them.

        y = (x - E[x]) / sqrt(Var[x] + eps) * weight + bias

    Args:
        input: (..., *normalized_shape)
        weight, bias: (*normalized_shape) or None
        eps: added to the variance, so that a constant row stays finite.

    Returns:
        The shape and dtype of the input.

    Raises:
        RuntimeError: shapes or dtypes do not match.
    Source: Ba, Kiros & Hinton, "Layer Normalization", 2016, https://arxiv.org/abs/1607.06450

    >>> F.layer_norm(mytorch.tensor([[1.0, 2.0, 3.0]]), (3,))
    tensor([[-1.22474  0.00000  1.22474]])
    """
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, True)
    y = centred * (centred.square().mean(dims, True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@layer_norm.check
def _check_layer_norm(input, normalized_shape, weight, bias, eps):
    _check_shape("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    if weight is not None:
        same_dtype("layer_norm", input, "weight", weight)
    if bias is not None:
        same_dtype("layer_norm", input, "bias", bias)


def _check_shape(name: str, input: Tensor, normalized_shape: Sequence[int], **parameters: Tensor | None):
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(f"{name}(): normalized_shape must be a tuple of ints, got {normalized_shape!r}")
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError(f"{name}(): expected normalized_shape to be at least 1-dimensional, got ()")
    if input.data.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"{name}(): given normalized_shape={list(shape)}, expected an input of shape "
            f"[*, {', '.join(map(str, shape))}], but got {list(input.shape)}"
        )
    require_float(input.dtype, name)
    for key, parameter in parameters.items():
        if parameter is not None and parameter.data.shape != shape:
            raise RuntimeError(
                f"{name}(): expected {key} to be of same shape as normalized_shape, {list(shape)}, "
                f"but got {key} of shape {list(parameter.shape)}"
            )


def _by_rows(x, normalized_shape, weight, bias, eps, centred):
    n = math.prod(normalized_shape)
    x_hat, vjp = standardize(np.reshape(x, (x.size // max(n, 1), n)), eps, centred)
    weight = None if weight is None else np.reshape(weight, n)
    bias = None if bias is None else np.reshape(bias, n)
    return scale_and_shift(x_hat, weight, bias, vjp, COLUMNS, x.shape, tuple(normalized_shape))


@layer_norm.manual
def _layer_norm(x, normalized_shape, weight, bias, eps):
    y, dx, dweight, dbias = _by_rows(x, normalized_shape, weight, bias, eps, True)
    return y, (dx, None, dweight, dbias)


@composite(order=contiguous)
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divides by the root of the mean square of the last dims, then scales.

        y = x / sqrt(E[x^2] + eps) * weight

    Args:
        input: (..., *normalized_shape)
        weight: (*normalized_shape) or None; used in the dtype of the input.
        eps: by default the machine epsilon of the dtype, for half precision that of float32.

    Raises:
        RuntimeError: shapes do not match; integers.
    Source: Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019, https://arxiv.org/abs/1910.07467

    >>> F.rms_norm(mytorch.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.84853 1.13137]])
    """
    dims = tuple(range(-len(normalized_shape), 0))
    y = input * (input.square().mean(dims, True) + eps).rsqrt()
    return y if weight is None else y * weight


@rms_norm.check
def _check_rms_norm(input, normalized_shape, weight, eps):
    _check_shape("rms_norm", input, normalized_shape, weight=weight)
    dtype = np.promote_types(input.dtype, np.float32)
    eps = float(np.finfo(dtype).eps) if eps is None else eps
    weight = weight if weight is None or weight.dtype == dtype else weight.to(dtype)
    return input, normalized_shape, weight, eps


@rms_norm.manual
def _rms_norm(x, normalized_shape, weight, eps):
    y, dx, dweight, _ = _by_rows(x, normalized_shape, weight, None, eps, False)
    return y, (dx, None, dweight)


@composite(outputs=True, order=lambda results: tuple(map(contiguous, results)))
def add_layer_norm(
    input: Tensor, residual: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Adds two tensors and normalizes the last dims of the sum: see `layer_norm`; not in PyTorch.

        sum = input + residual
        y = (sum - E[sum]) / sqrt(Var[sum] + eps) * weight + bias

    A block of a pre-norm transformer adds the previous output to the residual stream and uses both the stream
    and its norm. A kernel reads both summands once and writes both results.

    Args:
        input, residual: (..., *normalized_shape), of one shape and dtype.
        weight, bias: (*normalized_shape) or None
        eps: added to the variance.

    Returns:
        (y, sum), both in the shape and dtype of the input.

    Raises:
        RuntimeError: shapes or dtypes do not match.
    Source: Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020, figure 1 (b),
        https://arxiv.org/abs/2002.04745

    >>> F.add_layer_norm(mytorch.tensor([[1.0, 2.0]]), mytorch.ones(1, 2), (2,))  # (y, sum)
    (tensor([[-0.99998  0.99998]]), tensor([[2.00000 3.00000]]))
    """
    total = input + residual
    return layer_norm.reference(total, normalized_shape, weight, bias, eps), total


@add_layer_norm.check
def _check_add_layer_norm(input, residual, normalized_shape, weight, bias, eps):
    if residual.data.shape != input.data.shape or residual.dtype != input.dtype:
        raise RuntimeError(
            f"add_layer_norm(): input and residual must be of one shape and dtype, got {input.data.shape} of "
            f"{input.dtype} and {residual.data.shape} of {residual.dtype}"
        )
    layer_norm.checker(input, normalized_shape, weight, bias, eps)


@add_layer_norm.manual
def _add_layer_norm(x, residual, normalized_shape, weight, bias, eps):
    total = in_c_order(x + residual)
    y, dx, dweight, dbias = _by_rows(total, normalized_shape, weight, bias, eps, True)
    has_weight, has_bias = weight is not None, bias is not None  # the closure must not hold the bias

    def vjp(gradients):
        dy, dsum = gradients
        if dy is None:
            return dsum, dsum
        d = dx(dy) if dsum is None else dx(dy) + dsum
        return d, d, None, dweight(dy) if has_weight else None, dbias(dy) if has_bias else None

    return (y, total), vjp


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
        2012, section 3.3, https://papers.nips.cc/paper/4824

    >>> F.local_response_norm(mytorch.ones(1, 4, 5), 2).shape
    Size([1, 4, 5])
    """
    if input.ndim < 3:
        raise ValueError(
            f"local_response_norm(): expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if size <= 0:
        raise RuntimeError(f"local_response_norm(): size should be greater than zero, got {size}")
    if not is_floating_point(input.dtype) and input.dtype != np.int64:
        require_float(input.dtype, "local_response_norm")
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

    >>> F.normalize(mytorch.tensor([[3.0, 4.0]]))
    tensor([[0.60000 0.80000]])
    """
    return input / norm(input, p, dim, True).clamp(min=eps)
