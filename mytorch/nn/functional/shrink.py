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

    >>> F.softshrink(mytorch.tensor([-1.0, 0.2]))
    tensor([-0.50000  0.00000])
    """
    return input - input.clamp(-lambd, lambd)


@softshrink.check
def _check_softshrink(input, lambd):
    require_float(input.dtype, "softshrink")
    if not lambd >= 0:
        raise RuntimeError(f"softshrink(): lambd must not be negative, got {lambd}")


@composite
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Returns x where |x| > lambd, else 0.

    >>> F.hardshrink(mytorch.tensor([-1.0, 0.2]))
    tensor([-1.00000  0.00000])
    """
    return where(input.abs() <= lambd, 0, input)


floats_only(hardshrink)


@composite
def tanhshrink(input: Tensor) -> Tensor:
    """Returns x - tanh(x), floating-point for integers.

    >>> F.tanhshrink(mytorch.tensor([0.0, 1.0]))
    tensor([0.00000 0.23841])
    """
    return input - input.tanh()
