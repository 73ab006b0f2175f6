from __future__ import annotations

import math

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class RAdam(Optimizer):
    """Adam with a rectified start: plain momentum while the variance of few gradients is uncertain.

        g <- g + weight_decay p                     (-g for g if maximize)
        m <- beta1 m + (1 - beta1) g                m_hat = m / (1 - beta1^t)
        v <- beta2 v + (1 - beta2) g^2              v_hat = v / (1 - beta2^t)
        n  = 2 / (1 - beta2) - 1,                   n_t = n - 2 t beta2^t / (1 - beta2^t)
        r  = sqrt((n_t - 4) (n_t - 2) n / ((n - 4) (n - 2) n_t))
        p <- p - lr r m_hat / (sqrt(v_hat) + eps)   if n_t > 5, else  p - lr m_hat

    Args:
        params: see `Optimizer`.
        betas: (beta1, beta2), how much of the old means is kept.
        decoupled_weight_decay: p <- (1 - lr weight_decay) p instead of the first line, as in AdamW.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step` (t), `exp_avg` (m), `exp_avg_sq` (v).

    Raises:
        ValueError: a negative option, or a beta outside [0, 1).

    Source: Liu et al., 2020. https://arxiv.org/abs/1908.03265; with eps added as in PyTorch, sqrt(v) + eps.

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.RAdam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.90000 0.90000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        (beta1, beta2), t = group["betas"], x.scratch
        m, v = x.state["exp_avg"], x.state["exp_avg_sq"]
        g = x.penalized_grad(group)
        x.average(m, g, beta1)
        x.average_square(v, g, beta2)
        step_size = group["lr"] / (1 - beta1**step)
        correction2 = 1 - beta2**step
        n = 2 / (1 - beta2) - 1
        n_t = n - 2 * step * beta2**step / correction2
        if n_t > 5:
            rectification = (n_t - 4) * (n_t - 2) * n / ((n - 4) * (n - 2) * n_t)
            np.sqrt(v, out=t)
            t += group["eps"]
            np.divide(m, t, out=t)
            t *= step_size * math.sqrt(correction2 * rectification)
        else:
            np.multiply(m, step_size, out=t)
        x.data -= t
