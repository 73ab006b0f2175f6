"""The products of meta arrays, shown to the counters of floating-point operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from .layout import Shape

observers: list[Callable[[int], None]] = []  # called with the floating-point operations of each product


def show_product(sizes: Iterable[int]) -> None:
    """Shows a product with loops of these sizes: a multiplication and an addition in the innermost one."""
    for observe in observers:
        observe(2 * math.prod(sizes))


def show_matmul(shape: Shape, x: Shape) -> None:
    """Shows a matrix product of this shape, whose left factor has the shape `x`."""
    if observers:
        show_product((*shape, x[-1]))
