from __future__ import annotations

import math

import numpy as np

from .optimizer import Optimizer
from .options import check_not_tensors, checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


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
        fused: True demands the kernel, False forbids it; None uses it where it is available.
        differentiable: not available.

    State: `step` (t), `exp_avg` (m), `exp_avg_sq` (v), with amsgrad `max_exp_avg_sq`.

    Raises:
        ValueError: a negative option, or a beta outside [0, 1).
        RuntimeError: fused=True without a kernel for these parameters, or together with foreach=True.

    Source: Kingma & Ba, 2015. https://arxiv.org/abs/1412.6980; amsgrad: Reddi, Kale & Kumar, 2018.
    https://openreview.net/forum?id=ryQu7f-RZ

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.Adam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.90000 0.90000], requires_grad=True)
    """

    kernel = "adam"

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None, decoupled_weight_decay: bool = False,
    ):
        options = checked_options(locals())
        if foreach and not capturable:
            check_not_tensors({"lr": lr, "betas[0]": betas[0], "betas[1]": betas[1]})
        super().__init__(params, options)

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        (beta1, beta2), t = group["betas"], x.scratch
        m, v = x.state["exp_avg"], x.state["exp_avg_sq"]
        g = x.penalized_grad(group)
        x.average(m, g, beta1)
        x.average_square(v, g, beta2)
        if group["amsgrad"]:
            v = np.maximum(x.state["max_exp_avg_sq"], v, out=x.state["max_exp_avg_sq"])
        # lr m_hat / (sqrt(v_hat) + eps), with the bias corrections in the scalars: no pass of their own.
        correction = math.sqrt(1 - beta2**step)
        np.sqrt(v, out=t)
        t += group["eps"] * correction
        np.divide(m, t, out=t)
        t *= group["lr"] * correction / (1 - beta1**step)
        x.data -= t
