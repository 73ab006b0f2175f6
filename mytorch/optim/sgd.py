from __future__ import annotations

import numpy as np

from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum.

        g <- g + weight_decay p
        b <- momentum b + (1 - dampening) g         (b <- g the first time)
        g <- g + momentum b  if nesterov, else  b
        p <- p - lr g                               (-g for g in the first line if maximize)

    Args:
        params: see `Optimizer`.
        foreach: without effect; all parameters are updated at once in any case.
        fused: True demands the kernel, False forbids it; None uses it where it is available.
        differentiable: not available.

    State: `momentum_buffer`, if momentum isn't 0.

    Raises:
        ValueError: a negative option; nesterov without momentum or with dampening.
        RuntimeError: fused=True without a kernel for these parameters, or together with foreach=True.

    Source: Sutskever, Martens, Dahl & Hinton, 2013, in PyTorch's form, where lr is outside b.
    https://proceedings.mlr.press/v28/sutskever13.html

    >>> layer = nn.Linear(2, 1)
    >>> optimizer = optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    >>> layer(mytorch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.zero_grad()
    """

    kernel = "sgd"

    def __init__(
        self, params: Params, lr: float = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                "Nesterov momentum requires a momentum and zero dampening, "
                f"got momentum={momentum}, dampening={dampening}"
            )
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def state_scalars(self, group: ParamGroup) -> dict[str, float]:
        return {}

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        p, t, momentum = x.data, x.scratch, group["momentum"]
        g = x.penalized_grad(group)
        if momentum != 0:
            b = x.state["momentum_buffer"]
            if step == 1:
                b[...] = g
            else:
                b *= momentum
                b += np.multiply(g, 1 - group["dampening"], out=t)
            g = np.add(g, np.multiply(b, momentum, out=t), out=t) if group["nesterov"] else b
        p -= np.multiply(g, group["lr"], out=t)
