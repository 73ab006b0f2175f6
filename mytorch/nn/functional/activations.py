"""Activations: functions of one element."""

from __future__ import annotations

from ...ops import elementwise, where
from ...tensor import Tensor
from .composite import composite


def require_float(x: Tensor, name: str) -> None:
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f"{name}(): not implemented for dtype {x.dtype}, only for floating-point tensors"
        )


@composite
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0); where x is 0 the gradient is 0.

    Source: Nair & Hinton, "Rectified Linear Units Improve Restricted Boltzmann Machines", ICML 2010.
    """
    return where(input <= 0, 0, input)


@relu.manual(half=True)
def _relu(x, inplace):
    return elementwise.relu.forward(x)


@composite
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which can't overflow"""
    return 0.5 * (0.5 * input).tanh() + 0.5


sigmoid.manual(elementwise.sigmoid.forward)


@composite
def tanh(input: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x))"""
    return input.tanh()


@composite
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x), also called swish.

    Source: Elfwing, Uchibe & Doya, 2017, https://arxiv.org/abs/1702.03118
    """
    return input * sigmoid(input, auto=True)


@silu.check
def _check_silu(input, inplace):
    require_float(input, "silu")


@silu.manual
def _silu(x, inplace):
    s, _ = elementwise.sigmoid.forward(x)
    y = x * s
    return y, lambda g: g * (s + y * (1 - s))
