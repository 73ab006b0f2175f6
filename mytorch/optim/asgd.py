from __future__ import annotations

import numpy as np

from ..backends.device import RawArray
from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class ASGD(Optimizer):
    """Averaged stochastic gradient descent: with the mean of the parameters since step t0 in its state.

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

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.ASGD([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.89999 0.89999], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ):
        super().__init__(params, checked_options(locals(), unchecked=("alpha",)))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("ax",)

    def state_scalars(self, group: ParamGroup) -> dict[str, float]:
        return {"step": 0.0, "eta": 0.0, "mu": 1.0}

    def prepare(self, scalars: dict[str, RawArray], step: int, group: ParamGroup) -> ParamGroup:
        if step == 1:
            scalars["eta"].fill(group["lr"])
        current = {name: float(scalars[name][0]) for name in ("eta", "mu")}
        scalars["eta"].fill(group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"])
        scalars["mu"].fill(1 / max(1, step - group["t0"]))
        return {**group, **current}

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        ax, eta, t = x.state["ax"], group["eta"], x.scratch
        g = x.penalized_grad(group)
        np.multiply(g, eta, out=t)
        x.data *= 1 - group["lambd"] * eta
        x.data -= t
        if group["mu"] == 1:
            ax[...] = x.data
        else:
            x.average(ax, x.data, 1 - group["mu"])
