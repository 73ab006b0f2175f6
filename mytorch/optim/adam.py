from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .flat import Chunk
from .optimizer import Optimizer, as_number, check_lr, check_not_negative


class Adam(Optimizer):
    """Adam: a step of about lr in each coordinate, by the mean of the gradients over their root mean square.

        g <- g + weight_decay p                     (-g for g if maximize)
        m <- beta1 m + (1 - beta1) g                m_hat = m / (1 - beta1^t)
        v <- beta2 v + (1 - beta2) g^2              v_hat = v / (1 - beta2^t); of the largest v if amsgrad
        p <- p - lr m_hat / (sqrt(v_hat) + eps)

    Args:
        params: see `Optimizer`.
        betas: (beta1, beta2), how much of the old means is kept.
        eps: added to the denominator.
        decoupled_weight_decay: p <- (1 - lr weight_decay) p instead of the first line: AdamW.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable, fused: not available.

    State: `step` (t), `exp_avg` (m), `exp_avg_sq` (v), with amsgrad `max_exp_avg_sq`.

    Raises:
        ValueError: a negative option, or a beta outside [0, 1).

    Source: Kingma & Ba, 2015. https://arxiv.org/abs/1412.6980; amsgrad: Reddi, Kale & Kumar, 2018.
    https://openreview.net/forum?id=ryQu7f-RZ
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None, decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        check_lr(lr)
        check_not_negative("epsilon value", eps)
        betas = (as_number(betas[0]), as_number(betas[1]))
        for i, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        check_not_negative("weight_decay value", weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "fused": fused,
            "differentiable": differentiable, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def update(self, x: Chunk, step: int, group: dict[str, Any]) -> None:
        lr, (beta1, beta2), weight_decay = group["lr"], group["betas"], group["weight_decay"]
        p, m, v, t = x.data, x.state["exp_avg"], x.state["exp_avg_sq"], x.scratch
        if group["decoupled_weight_decay"]:
            p *= 1 - lr * weight_decay
            weight_decay = 0
        g = x.penalized_grad(group["maximize"], weight_decay)
        np.subtract(g, m, out=t)  # m + (1 - beta1) (g - m) is the same mean
        t *= 1 - beta1
        m += t
        np.multiply(g, g, out=t)
        t *= 1 - beta2
        v *= beta2
        v += t
        if group["amsgrad"]:
            v = np.maximum(x.state["max_exp_avg_sq"], v, out=x.state["max_exp_avg_sq"])
        # lr m_hat / (sqrt(v_hat) + eps) with the corrections pulled out: they cost no pass of their own.
        correction = math.sqrt(1 - beta2**step)
        np.sqrt(v, out=t)
        t += group["eps"] * correction
        np.divide(m, t, out=t)
        t *= lr * correction / (1 - beta1**step)
        p -= t
