"""linear, linear with an activation, bilinear."""

from __future__ import annotations

import numpy as np

from ...backends.blas import add_product, column_sums, product, rows
from ...backends.dtypes import is_half
from ...core.grad_accumulator import LazyGrad
from ...core.tensor import Tensor
from ...ops import permute, reshape
from ...ops import sum as sum_
from ...ops.linalg import _matmul  # without autocast, whose casts of bilinear are others
from .activations import silu, silu_manual
from .composite import composite
from .gelu import gelu, gelu_manual
from .rectifiers import relu, relu_manual


@composite
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns y = x W^T + b.

    Args:
        input: (..., in_features)
        weight: (out_features, in_features); (in_features,) for a result without the last dim.
        bias: (out_features,), or broadcastable to the result.

    Returns:
        (..., out_features)

    Raises:
        RuntimeError: shapes do not match, or dtypes differ.

    >>> F.linear(mytorch.ones(4, 2), mytorch.ones(3, 2), mytorch.zeros(3)).shape
    Size([4, 3])
    """
    y = input @ weight.T
    return y if bias is None else y + bias


@linear.check
def _check(input, weight, bias):
    x, w = input.data.shape, weight.data.shape
    if not x or len(w) not in (1, 2):
        raise RuntimeError(
            "linear(): expected an input of at least 1 dimension and a weight of 1 or 2, "
            f"got shapes {x} and {w}"
        )
    if x[-1] != w[-1]:
        raise RuntimeError(
            f"linear(): shapes cannot be multiplied: input {x} has {x[-1]} features, "
            f"weight {w} expects {w[-1]}"
        )
    dtype = input.dtype
    if weight.dtype != dtype or (bias is not None and bias.dtype != dtype):
        got = f"{dtype}, {weight.dtype}" + (f" and {bias.dtype}" if bias is not None else "")
        raise RuntimeError(f"linear(): expected input, weight and bias to have the same dtype, got {got}")
    if dtype.kind == "b":
        raise NotImplementedError("linear(): not implemented for bool tensors")
    if bias is not None and bias.data.shape != w[:-1]:
        _check_bias(bias.data.shape, (*x[:-1], *w[:-1]))


def _check_bias(bias, output):
    if bias != output[-1:]:
        fits = len(bias) <= len(output) and all(
            b in (1, n) for b, n in zip(bias[::-1], output[::-1], strict=False)
        )
        if not fits:
            raise RuntimeError(f"linear(): a bias of shape {bias} can't be expanded to the output's {output}")


@linear.manual(half=True)
def _linear(x, weight, bias, activation=None):
    """The manual backward: one product over all rows for each of z, dx = dz W and dweight = dz^T x."""
    matrix = weight if weight.ndim == 2 else weight[None]
    features = matrix.shape[0]
    x_shape, shape, x = x.shape, weight.shape, rows(x)
    z = product(x, matrix.T)
    if bias is not None:
        z += bias if bias.ndim < 2 else rows(np.broadcast_to(bias, (*x_shape[:-1], features)))
    count = z.shape[0]
    simple = bias is not None and bias.shape == (features,) and not is_half(bias.dtype)
    y, vjp = MANUAL_ACTIVATIONS[activation](z) if activation else (z, None)
    last: list = []  # the last g and its dz, which the three gradients share

    def dz(g):
        if vjp is None:
            return g.reshape(count, features)
        if not last or last[0] is not g:
            last[:] = g, vjp(g.reshape(count, features))
        return last[1]

    def dx(g):
        return product(dz(g), matrix).reshape(x_shape)

    def dweight(g):
        def compute(out, beta):
            add_product(dz(g).T, x, out if out.ndim == 2 else out[None], beta)

        return LazyGrad(shape, g, compute)

    def dbias(g):
        return column_sums(dz(g)) if simple else dz(g).reshape(g.shape)

    return y.reshape((*x_shape[:-1], *shape[:-1])), (dx, dweight, dbias)


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, "tanh"),
    "relu": relu,
    "silu": silu,
}
MANUAL_ACTIVATIONS = {
    "gelu": lambda z: gelu_manual(z, "none"),
    "gelu_tanh": lambda z: gelu_manual(z, "tanh"),
    "relu": lambda z: relu_manual(z, False),
    "silu": lambda z: silu_manual(z, False),
}


@composite
def linear_activation(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "gelu"
) -> Tensor:
    """Returns y = f(x W^T + b), in one kernel where available: f reads the sum from the cache.

    Args:
        input, weight, bias: as for `linear`.
        activation: f, "gelu", "gelu_tanh", "relu" or "silu".

    Raises:
        ValueError: an unknown activation.
        RuntimeError: shapes do not match, or dtypes differ.

    >>> F.linear_activation(mytorch.ones(4, 2), mytorch.ones(3, 2), None, "relu").shape
    Size([4, 3])
    """
    return ACTIVATIONS[activation](linear(input, weight, bias))


@linear_activation.check
def _check_linear_activation(input, weight, bias, activation):
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"linear_activation(): activation is one of {', '.join(ACTIVATIONS)}; got {activation!r}"
        )
    _check(input, weight, bias)


@linear_activation.manual
def _linear_activation(x, weight, bias, activation):
    return _linear(x, weight, bias, activation)


@composite
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns y_o = x1^T W_o x2 + b_o.

    Args:
        input1: (..., in1_features)
        input2: (..., in2_features), with the same leading dims.
        weight: (out_features, in1_features, in2_features)
        bias: (out_features,)

    Returns:
        (..., out_features)

    Raises:
        NotImplementedError: bool tensors.
        RuntimeError: shapes do not match, or dtypes differ.

    >>> F.bilinear(mytorch.ones(5, 2), mytorch.ones(5, 3), mytorch.ones(4, 2, 3)).shape
    Size([5, 4])
    """
    features, first, second = weight.shape
    matrix = reshape(permute(weight, (1, 0, 2)), (first, features * second))
    y = reshape(_matmul(input1, matrix), (*input1.shape[:-1], features, second))
    y = sum_(y * input2.unsqueeze(-2), -1, dtype=y.dtype)
    return y if bias is None else y + bias


@bilinear.check
def _check_bilinear(input1, input2, weight, bias):
    one, two, w = input1.data.shape, input2.data.shape, weight.data.shape
    if not one or not two:
        raise IndexError(f"bilinear(): expected inputs of at least 1 dimension, got shapes {one} and {two}")
    if len(w) != 3 or one[:-1] != two[:-1] or (one[-1], two[-1]) != w[1:]:
        raise RuntimeError(
            f"bilinear(): inputs of shapes {one} and {two} and a weight of shape {w} do not match "
            "(..., in1), (..., in2), (out, in1, in2)"
        )
    if bias is not None and bias.data.shape != w[:1]:
        raise RuntimeError(f"bilinear(): expected a bias of shape {w[:1]}, got {bias.data.shape}")
    dtypes = {str(x.dtype) for x in (input1, input2, weight, bias) if x is not None}
    if len(dtypes) > 1:
        raise RuntimeError(f"bilinear(): expected all tensors to have the same dtype, got {sorted(dtypes)}")
    if input1.dtype == bool:
        raise NotImplementedError("bilinear(): not implemented for bool tensors")
