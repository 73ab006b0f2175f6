"""Dropout."""

from __future__ import annotations

from ...device import device_of
from ...ops import rand_like
from ...random import generator_on
from ...tensor import Tensor
from .composite import composite


@composite
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), so that the mean stays.

    It draws from the default generator of the input's device. Without `training` it returns the input itself.

    Raises:
        ValueError: p is no probability.
    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014.
    """
    keep = rand_like(input) >= p
    return input * keep * (1 / (1 - p) if p < 1 else 0)


@dropout.check
def _check(input, p, training, inplace):
    check_probability(p)
    if not training or p == 0:
        return input
    if input.dtype.kind != "f":
        raise RuntimeError(
            f"dropout(): a result of type float can't be cast to the input's type {input.dtype}"
        )
    return None


def check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@dropout.manual
def _dropout(x, p, training, inplace):
    mask = dropout_mask(x, x.shape, p)
    return x * mask, lambda g: g * mask


def dropout_mask(x, shape, p):
    """0 with probability p, else 1 / (1 - p), in the dtype and on the device of x."""
    rng = generator_on(device_of(x), None).rng
    mask = (rng.random(shape, dtype=x.dtype) >= p).astype(x.dtype)
    mask *= x.dtype.type(1 / (1 - p) if p < 1 else 0)
    return mask
