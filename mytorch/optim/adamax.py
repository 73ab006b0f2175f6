from __future__ import annotations

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class Adamax(Optimizer):
    """Adam with a decaying maximum of the gradients instead of their root mean square.

        g <- g + weight_decay p                     (-g for g if maximize)
        m <- beta1 m + (1 - beta1) g
        u <- max(beta2 u, |g| + eps)
        p <- p - lr / (1 - beta1^t) m / u

    Args:
        params: see `Optimizer`.
        betas: (beta1, beta2), how much of the old mean and of the old maximum is kept.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step` (t), `exp_avg` (m), `exp_inf` (u).

    Raises:
        ValueError: a negative option, or a beta outside [0, 1).

    Source: Kingma & Ba, 2015, section 7.1. https://arxiv.org/abs/1412.6980

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.Adamax([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.90000 0.90000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        (beta1, beta2), t = group["betas"], x.scratch
        m, u = x.state["exp_avg"], x.state["exp_inf"]
        g = x.penalized_grad(group)
        x.average(m, g, beta1)
        np.abs(g, out=t)
        t += group["eps"]
        u *= beta2
        np.maximum(u, t, out=u)
        np.divide(m, u, out=t)
        t *= group["lr"] / (1 - beta1**step)
        x.data -= t
