from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .chunk import Chunk
from .optimizer import Optimizer
from .options import as_number, check_lr


class Rprop(Optimizer):
    """Resilient backpropagation: each coordinate has its own step, and only the gradient's sign counts.

        s <- s eta_plus where g has the sign it had before, s eta_minus where it has changed, in step_sizes
        g <- 0 where the sign has changed           (-g for g if maximize)
        p <- p - s sign(g)

    For gradients of the whole data set; those of a batch change their sign by chance.

    Args:
        params: see `Optimizer`.
        lr: the first s.
        etas: (eta_minus, eta_plus).
        step_sizes: the smallest and the largest s.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step`, `prev` (the last g), `step_size` (s).

    Raises:
        ValueError: a negative lr, or not 0 < eta_minus < 1 < eta_plus.

    Source: Riedmiller & Braun, 1993, in the variant iRprop- of Igel & Hüsken, 2000.
    https://ieeexplore.ieee.org/document/298623
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_lr(lr)
        if not 0 < as_number(etas[0]) < 1 < as_number(etas[1]):
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("prev", "step_size")

    def update(self, x: Chunk, step: int, group: dict[str, Any]) -> None:
        before, size, t = x.state["prev"], x.state["step_size"], x.scratch
        (less, more), (smallest, largest) = group["etas"], group["step_sizes"]
        if step == 1:
            size.fill(group["lr"])
        g = x.penalized_grad({**group, "weight_decay": 0})
        np.multiply(g, before, out=t)
        turned = t < 0
        size *= np.where(turned, less, np.where(t > 0, more, 1)).astype(size.dtype)
        np.maximum(size, smallest, out=size)
        np.minimum(size, largest, out=size)
        before[...] = np.where(turned, 0, g)
        np.sign(before, out=t)
        t *= size
        x.data -= t
