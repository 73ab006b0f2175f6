from __future__ import annotations

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class Lion(Optimizer):
    """Lion: a step of lr in each coordinate, in the sign of a mean of the gradients; it keeps one vector.

        p <- (1 - lr weight_decay) p
        p <- p - lr sign(beta1 m + (1 - beta1) g)   (-g for g if maximize)
        m <- beta2 m + (1 - beta2) g

    Its steps are longer than Adam's: the paper recommends an lr three to ten times smaller than AdamW's, and
    a weight_decay larger by the same factor.

    Args:
        params: see `Optimizer`.
        betas: (beta1, beta2), how much of the mean counts in the step, and how much of it is kept.
        fused: True demands the kernel, False forbids it; None uses it where it is available.

    State: `exp_avg` (m).

    Raises:
        ValueError: a negative option, or a beta outside [0, 1).
        RuntimeError: fused=True without a kernel for these parameters.

    Source: Chen et al., 2023, algorithm 2. https://arxiv.org/abs/2302.06675

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.Lion([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.90000 0.90000], requires_grad=True)
    """

    kernel = "lion"

    def __init__(
        self, params: Params, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0, *, maximize: bool = False, fused: bool | None = None,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("exp_avg",)

    def state_scalars(self, group: ParamGroup) -> dict[str, float]:
        return {}

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        (beta1, beta2), m, t = group["betas"], x.state["exp_avg"], x.scratch
        g = x.penalized_grad({**group, "decoupled_weight_decay": True})
        change = m * beta1
        change += np.multiply(g, 1 - beta1, out=t)
        np.sign(change, out=change)
        x.data -= np.multiply(change, group["lr"], out=t)
        x.average(m, g, beta2)
