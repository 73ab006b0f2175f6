from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .chunk import Chunk
from .optimizer import Optimizer
from .options import check_betas, check_lr, check_not_negative


class RAdam(Optimizer):
    """Adam that begins carefully: while too few gradients were seen to know their variance, plain momentum.

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

    Source: Liu et al., 2020. https://arxiv.org/abs/1908.03265; PyTorch's place of eps: sqrt(v) + eps.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ):  # fmt: skip
        check_lr(lr)
        check_not_negative("epsilon value", eps)
        check_betas(betas)
        check_not_negative("weight_decay value", weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def update(self, x: Chunk, step: int, group: dict[str, Any]) -> None:
        (beta1, beta2), t = group["betas"], x.scratch
        m, v = x.state["exp_avg"], x.state["exp_avg_sq"]
        g = x.penalized_grad(group)
        x.average(m, g, beta1)
        x.average_square(v, g, beta2)
        scale = group["lr"] / (1 - beta1**step)
        known = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / known
        if length > 5:
            ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            np.sqrt(v, out=t)
            t += group["eps"]
            np.divide(m, t, out=t)
            t *= scale * math.sqrt(known * ratio)
        else:
            np.multiply(m, scale, out=t)
        x.data -= t
