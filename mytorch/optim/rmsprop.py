from __future__ import annotations

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class RMSprop(Optimizer):
    """RMSprop: the gradient over its root mean square.

        g <- g + weight_decay p                     (-g for g if maximize)
        v <- alpha v + (1 - alpha) g^2
        d  = sqrt(v) + eps                          (sqrt(v - m^2) + eps if centered,
                                                     m <- alpha m + (1 - alpha) g)
        p <- p - lr g / d                           (p - lr b with momentum, b <- momentum b + g / d)

    Args:
        params: see `Optimizer`.
        alpha: how much of the old means is kept.
        eps: added to the denominator, outside the root.
        centered: divide by the standard deviation instead.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step`, `square_avg` (v), with momentum `momentum_buffer` (b), centered `grad_avg` (m).

    Raises:
        ValueError: a negative option.

    Source: Tieleman & Hinton, 2012, lecture 6.5. https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf;
    centered: Graves, 2013. https://arxiv.org/abs/1308.0850

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.RMSprop([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([5.96046e-08 5.96046e-08], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return tuple(names)

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        v, t, alpha = x.state["square_avg"], x.scratch, group["alpha"]
        g = x.penalized_grad(group)
        x.average_square(v, g, alpha)
        if group["centered"]:
            m = x.state["grad_avg"]
            x.average(m, g, alpha)
            np.multiply(m, m, out=t)
            v = np.subtract(v, t, out=t)
        np.sqrt(v, out=t)
        t += group["eps"]
        change = np.divide(g, t, out=t)
        if group["momentum"] > 0:
            b = x.state["momentum_buffer"]
            b *= group["momentum"]
            b += change
            change = b
        x.data -= np.multiply(change, group["lr"], out=t)
