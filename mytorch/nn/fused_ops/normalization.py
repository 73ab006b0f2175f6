"""Norms, and norms after an addition, of one function: what it says of the one holds for the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..functional.composite import Composite


def register(kind: str, norm: Composite, add_norm: Composite, normalize: Callable) -> None:
    """Register the kernels of a norm and of `add_norm`, the norm of a sum, for a kind of device.

    Args:
        normalize: `(x, residual, *the norm's other arguments) -> (y, sum, backward)`. Without an addition the
            residual is None, and the sum means nothing. `backward(of_y, of_sum)` gives the gradients of the
            norm's arguments, that of x in place of the sum's; of_y is never None, of_sum may be.
    """

    @norm.fused(kind)
    def plain(x: Any, *rest: Any) -> tuple:
        y, _, backward = normalize(x, None, *rest)
        return y, lambda g: backward(g, None)

    @add_norm.fused(kind)
    def of_sum(x: Any, residual: Any, *rest: Any) -> tuple:
        y, total, backward = normalize(x, residual, *rest)

        def vjp(gradients):
            of_y, of_total = gradients
            through, *others = (of_total,) if of_y is None else backward(of_y, of_total)
            return through, through, *others

        return (y, total), vjp
