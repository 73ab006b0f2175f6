"""layer_norm, rms_norm and add_layer_norm, the norm of a sum; their backward is in `normalization`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...core.tensor import Tensor
from .activations import require_float
from .composite import composite
from .normalization import COLUMNS, same_dtype, scale_and_shift, standardize


@composite
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
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
    """
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, True)
    y = centred * (centred.square().mean(dims, True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@layer_norm.check
def _check_layer_norm(input, normalized_shape, weight, bias, eps):
    _check_shape("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    for key, parameter in (("weight", weight), ("bias", bias)):
        same_dtype("layer_norm", input, key, parameter)


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
    require_float(input, name)
    for key, parameter in parameters.items():
        if parameter is not None and parameter.data.shape != shape:
            raise RuntimeError(
                f"{name}(): expected {key} to be of same shape as normalized_shape, {list(shape)}, "
                f"but got {key} of shape {list(parameter.shape)}"
            )


def _by_rows(x, normalized_shape, weight, bias, eps, centred):
    n = math.prod(normalized_shape)
    x_hat, vjp = standardize(np.reshape(x, (x.size // max(n, 1), n)), eps, centred)
    weight, bias = (None if p is None else np.reshape(p, n) for p in (weight, bias))
    return scale_and_shift(x_hat, weight, bias, vjp, COLUMNS, x.shape, tuple(normalized_shape))


@layer_norm.manual
def _layer_norm(x, normalized_shape, weight, bias, eps):
    y, dx, dweight, dbias = _by_rows(x, normalized_shape, weight, bias, eps, True)
    return y, (dx, None, dweight, dbias)


@composite
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
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
    """
    dims = tuple(range(-len(normalized_shape), 0))
    y = input * (input.square().mean(dims, True) + eps).rsqrt()
    return y if weight is None else y * weight


@rms_norm.check
def _check_rms_norm(input, normalized_shape, weight, eps):
    _check_shape("rms_norm", input, normalized_shape, weight=weight)
    dtype = np.promote_types(input.dtype, np.float32)
    eps = float(np.finfo(dtype).eps) if eps is None else eps
    return input, normalized_shape, None if weight is None else weight.to(dtype), eps


@rms_norm.manual
def _rms_norm(x, normalized_shape, weight, eps):
    y, dx, dweight, _ = _by_rows(x, normalized_shape, weight, None, eps, False)
    return y, (dx, None, dweight)


@composite(outputs=True)
def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
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
    total = x + residual
    y, dx, dweight, dbias = _by_rows(total, normalized_shape, weight, bias, eps, True)
    has_weight, has_bias = weight is not None, bias is not None  # the closure must not hold the bias

    def vjp(gradients):
        dy, dsum = gradients
        if dy is None:
            return dsum, dsum
        d = dx(dy) if dsum is None else dx(dy) + dsum
        return d, d, None, dweight(dy) if has_weight else None, dbias(dy) if has_bias else None

    return (y, total), vjp
