from __future__ import annotations

from itertools import chain

import numpy as np

from ..core.tensor import Tensor
from .flat_state import FlatState
from .optimizer import Optimizer
from .options import checked_options
from .param_groups import ParamGroup, Params
from .update import Chunk, as_number


class Adagrad(Optimizer):
    """Adagrad: the larger the past gradients of a coordinate, the smaller its steps.

        g <- g + weight_decay p                     (-g for g if maximize)
        s <- s + g^2                                (s is initial_accumulator_value at first)
        p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)

    Args:
        params: see `Optimizer`.
        foreach: without effect; all parameters are updated at once in any case.
        fused: not True; there is no kernel.
        differentiable: not available.

    State: `step` (t), `sum` (s); both exist before the first step.

    Raises:
        ValueError: a negative option.

    Source: Duchi, Hazan & Singer, 2011. https://jmlr.org/papers/v12/duchi11a.html

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.Adagrad([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.90000 0.90000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ):
        super().__init__(params, checked_options(locals()))

    def state_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("sum",)

    def _flat_states(self) -> list[tuple[ParamGroup, FlatState]]:
        start = as_number(self.defaults["initial_accumulator_value"])
        for p in chain.from_iterable(group["params"] for group in self.param_groups):
            if not self.state.get(p):
                total = Tensor(np.full_like(p.data, complex(start, start) if p.is_complex() else start))
                self.state[p] = {"step": Tensor(np.zeros((), np.float32)), "sum": total}
        return super()._flat_states()

    def update(self, x: Chunk, step: int, group: ParamGroup) -> None:
        s, t = x.state["sum"], x.scratch
        g = x.penalized_grad(group)
        s += np.multiply(g, g, out=t)
        np.sqrt(s, out=t)
        t += group["eps"]
        np.divide(g, t, out=t)
        t *= group["lr"] / (1 + (step - 1) * group["lr_decay"])
        x.data -= t
