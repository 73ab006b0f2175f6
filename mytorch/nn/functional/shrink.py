"""Shrinkage: softshrink, hardshrink, tanhshrink."""

from __future__ import annotations

from ...core.tensor import Tensor
from ...ops import where
from .composite import composite, floats_only, require_float


@composite
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Returns x - min(max(x, -lambd), lambd): x moved towards 0 by lambd, and 0 where |x| <= lambd.

    Raises:
        RuntimeError: lambd is negative.
    """
    return input - input.clamp(-lambd, lambd)


@softshrink.check
def _check_softshrink(input, lambd):
    require_float(input.dtype, "softshrink")
    if not lambd >= 0:
        raise RuntimeError(f"softshrink(): lambd must not be negative, got {lambd}")


@composite
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Returns x where |x| > lambd, else 0."""
    return where(input.abs() <= lambd, 0, input)


floats_only(hardshrink)


@composite
def tanhshrink(input: Tensor) -> Tensor:
    """Returns x - tanh(x), floating-point for integers."""
    return input - input.tanh()
