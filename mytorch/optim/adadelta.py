from __future__ import annotations

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class Adadelta(Optimizer):
    """Adadelta: steps in the unit of the parameters, scaled by the root mean square of past steps.

        g <- g + weight_decay p                     (-g for g if maximize)
        v <- rho v + (1 - rho) g^2
        d  = sqrt(u + eps) / sqrt(v + eps) g
        u <- rho u + (1 - rho) d^2
        p <- p - lr d

    Args:
        params: see `Optimizer`.
        rho: how much of the old means is kept.
        eps: added inside the roots.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step`, `square_avg` (v), `acc_delta` (u).

    Raises:
        ValueError: a negative option, or a rho above 1.

    Source: Zeiler, 2012. https://arxiv.org/abs/1212.5701

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.Adadelta([w])
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.99684 0.99684], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        v, u, rho, eps = x.state["square_avg"], x.state["acc_delta"], group["rho"], group["eps"]
        g = x.penalized_grad(group)
        x.average_square(v, g, rho)
        d = np.sqrt(u + eps)
        d /= np.sqrt(v + eps)
        d *= g
        x.average_square(u, d, rho)
        d *= group["lr"]
        x.data -= d
