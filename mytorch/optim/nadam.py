from __future__ import annotations

import math

import numpy as np

from ..backends.device import RawArray
from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class NAdam(Optimizer):
    """Adam with Nesterov's momentum: the step uses the mean as the next update will see it.

        g  <- g + weight_decay p                    (-g for g if maximize)
        m  <- beta1 m + (1 - beta1) g
        v  <- beta2 v + (1 - beta2) g^2             v_hat = v / (1 - beta2^t)
        mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2),     M_t = mu_1 mu_2 … mu_t
        p  <- p - lr ((1 - mu_t) g / (1 - M_t) + mu_(t+1) m / (1 - M_(t+1))) / (sqrt(v_hat) + eps)

    Args:
        params: see `Optimizer`.
        betas: (beta1, beta2), how much of the old means is kept.
        decoupled_weight_decay: p <- (1 - lr weight_decay) p instead of the first line, as in AdamW.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step` (t), `mu_product` (M), `exp_avg` (m), `exp_avg_sq` (v).

    Raises:
        ValueError: a negative option, or a beta outside [0, 1).

    Source: Dozat, 2016. https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.NAdam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.89435 0.89435], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def state_scalars(self, group: ParamGroup) -> dict[str, float]:
        return {"step": 0.0, "mu_product": 1.0}

    def prepare(self, scalars: dict[str, RawArray], step: int, group: ParamGroup) -> ParamGroup:
        mu, mu_next = (
            group["betas"][0] * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1)
        )
        scalars["mu_product"] *= np.float32(mu)
        product = float(scalars["mu_product"][0])
        grad_factor = group["lr"] * (1 - mu) / (1 - product)
        mean_factor = group["lr"] * mu_next / (1 - product * mu_next)
        return {**group, "grad_factor": grad_factor, "mean_factor": mean_factor}

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        (beta1, beta2), t = group["betas"], x.scratch
        m, v = x.state["exp_avg"], x.state["exp_avg_sq"]
        g = x.penalized_grad(group)
        x.average(m, g, beta1)
        x.average_square(v, g, beta2)
        change = g * group["grad_factor"]
        change += np.multiply(m, group["mean_factor"], out=t)
        np.sqrt(v, out=t)
        t /= math.sqrt(1 - beta2**step)
        t += group["eps"]
        change /= t
        x.data -= change
