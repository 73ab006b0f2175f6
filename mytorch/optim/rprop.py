from __future__ import annotations

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class Rprop(Optimizer):
    """Resilient backpropagation: each coordinate has its own step size; only its gradient's sign matters.

        s <- s eta_plus where g has the sign it had before, s eta_minus where it has changed, in step_sizes
        g <- 0 where the sign has changed           (-g for g if maximize)
        p <- p - s sign(g)

    For gradients of the whole data set: those of a batch change their sign by chance.

    Args:
        params: see `Optimizer`.
        lr: the first s.
        etas: (eta_minus, eta_plus).
        step_sizes: the smallest and the largest s.
        foreach, capturable: without effect; all parameters are updated at once in any case.
        differentiable: not available.

    State: `step`, `prev` (the last g), `step_size` (s).

    Raises:
        ValueError: a negative lr, or not 0 < eta_minus < 1 < eta_plus.

    Source: Riedmiller & Braun, 1993, in the variant iRprop- of Igel & Hüsken, 2000.
    https://ieeexplore.ieee.org/document/298623

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.Rprop([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.90000 0.90000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("prev", "step_size")

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        previous, size, t = x.state["prev"], x.state["step_size"], x.scratch
        (eta_minus, eta_plus), (smallest, largest) = group["etas"], group["step_sizes"]
        if step == 1:
            size.fill(group["lr"])
        g = x.penalized_grad({**group, "weight_decay": 0})
        np.multiply(g, previous, out=t)
        flipped = t < 0
        size *= np.where(flipped, eta_minus, np.where(t > 0, eta_plus, 1)).astype(size.dtype)
        np.maximum(size, smallest, out=size)
        np.minimum(size, largest, out=size)
        previous[...] = np.where(flipped, 0, g)
        np.sign(previous, out=t)
        t *= size
        x.data -= t
