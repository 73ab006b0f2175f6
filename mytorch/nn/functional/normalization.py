"""Normalization: features brought to mean 0 and variance 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...backends.blas import column_sums, row_sums
from ...tensor import Tensor
from .activations import require_float
from .composite import composite


@composite
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize the last dims to mean 0 and variance 1, then scale and shift them.

        y = (x - E[x]) / sqrt(Var[x] + eps) * weight + bias

    Args:
        input: (..., *normalized_shape)
        weight, bias: (*normalized_shape) or None
        eps: added to the variance, so that a constant row stays finite.

    Returns:
        The shape and dtype of the input.

    Raises:
        RuntimeError: shapes or dtypes don't fit.
    Source: Ba, Kiros & Hinton, "Layer Normalization", 2016, https://arxiv.org/abs/1607.06450
    """
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, True)
    y = centred * (centred.square().mean(dims, True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _mixed(input, parameter):
    return input.dtype == np.float16 and parameter.dtype == np.float32


@layer_norm.check
def _check(input, normalized_shape, weight, bias, eps):
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(f"layer_norm(): normalized_shape must be a tuple of ints, got {normalized_shape!r}")
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError("layer_norm(): expected normalized_shape to be at least 1-dimensional, got ()")
    if input.data.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"layer_norm(): given normalized_shape={list(shape)}, expected an input of shape "
            f"[*, {', '.join(map(str, shape))}], but got {list(input.shape)}"
        )
    require_float(input, "layer_norm")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.data.shape != shape:
            raise RuntimeError(
                f"layer_norm(): expected {name} to be of same shape as normalized_shape, {list(shape)}, "
                f"but got {name} of shape {list(parameter.shape)}"
            )
        if parameter is not None and parameter.dtype != input.dtype and not _mixed(input, parameter):
            raise RuntimeError(
                f"layer_norm(): mixed dtype: input is {input.dtype}, {name} is {parameter.dtype}"
            )


@layer_norm.manual
def _layer_norm(x, normalized_shape, weight, bias, eps):
    """With x_hat = (x - mean) rstd and d = g weight:  dx = rstd (d - mean(d) - x_hat mean(d x_hat)).

    x_hat has mean 0 and variance 1 whatever x is, so dx loses the two parts of d that would change them.
    """
    n = math.prod(normalized_shape)
    shape, count, share = x.shape, x.size // max(n, 1), x.dtype.type(1 / max(n, 1))
    weight = None if weight is None else np.reshape(weight, n)

    def flat(a):
        return np.reshape(a, (count, n))

    x_hat = flat(x) - row_sums(flat(x)) * share
    variance = np.einsum("ij,ij->i", x_hat, x_hat)[:, None] * share
    rstd = 1 / np.sqrt(variance + x_hat.dtype.type(eps))
    x_hat *= rstd
    y = x_hat.copy() if weight is None else x_hat * weight
    if bias is not None:
        y += np.reshape(bias, n)

    def grad_x(g):
        g = flat(g)
        d = g.copy() if weight is None else g * weight
        along_x_hat = np.einsum("ij,ij->i", d, x_hat)[:, None] * share
        mean = row_sums(d) * share
        d -= mean
        d -= x_hat * along_x_hat
        d *= rstd
        return np.reshape(d, shape)

    def grad_weight(g):
        return np.reshape(column_sums(flat(g) * x_hat), normalized_shape)

    def grad_bias(g):
        return np.reshape(column_sums(flat(g)), normalized_shape)

    return np.reshape(y, shape), (grad_x, None, grad_weight, grad_bias)
