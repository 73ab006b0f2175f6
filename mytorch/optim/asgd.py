from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .chunk import Chunk
from .optimizer import Optimizer
from .options import check_lr, check_not_negative


class ASGD(Optimizer):
    """Averaged stochastic gradient descent: beside the parameters, the mean of all of them since step t0.

        g  <- g + weight_decay p                    (-g for g if maximize)
        p  <- (1 - lambd eta) p - eta g
        ax <- ax + mu (p - ax)
        eta <- lr / (1 + lambd lr t)^alpha,         mu <- 1 / max(1, t - t0)

    Args:
        params: see `Optimizer`.
        lambd: the decay, in p and in eta.
        alpha: how fast eta falls.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step` (t), `eta`, `mu`, `ax`.

    Raises:
        ValueError: a negative lr or weight_decay.

    Source: Polyak & Juditsky, 1992. https://epubs.siam.org/doi/10.1137/0330046
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ):  # fmt: skip
        check_lr(lr)
        check_not_negative("weight_decay value", weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("ax",)

    def state_numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"step": 0.0, "eta": 0.0, "mu": 1.0}

    def prepare(self, numbers: dict[str, Any], step: int, group: dict[str, Any]) -> dict[str, Any]:
        if step == 1:
            numbers["eta"].fill(group["lr"])
        now = {name: float(numbers[name][0]) for name in ("eta", "mu")}
        numbers["eta"].fill(group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"])
        numbers["mu"].fill(1 / max(1, step - group["t0"]))
        return {**group, **now}

    def update(self, x: Chunk, step: int, group: dict[str, Any]) -> None:
        ax, eta, t = x.state["ax"], group["eta"], x.scratch
        g = x.penalized_grad(group)
        np.multiply(g, eta, out=t)
        x.data *= 1 - group["lambd"] * eta
        x.data -= t
        if group["mu"] == 1:
            ax[...] = x.data
        else:
            x.average(ax, x.data, 1 - group["mu"])
