"""SharedScaler: one loss scale for all optimizers of an Accelerator."""

from __future__ import annotations

from typing import Any

from ..amp.grad_scaler import STEPPED, UNSCALED, AnyOptimizer, GradScaler, Losses
from ..backends.device import RawArray
from ..core.tensor import Tensor
from . import world
from .stateful import StateDict


class SharedScaler(GradScaler):
    """A GradScaler that updates by itself when all optimizers have stepped, or else with the next loss.

    PyTorch's `update()` after the step of the first of two optimizers would divide the gradients of the
    second by another scale than they were multiplied by.

    Attributes:
        optimizers: the optimizers that share the scale.
        loss: the last loss, for the message when training can't continue.
        is_shared: flags of inf and NaN are reduced over the processes. Off where some processes have no more
            data: the others find the same flags, since their gradients are averaged.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.optimizers: list[AnyOptimizer] = []
        self.loss: Tensor | None = None
        self.is_shared = True

    def scale(self, outputs: Losses) -> Losses:
        self._update_if_stepped()
        return super().scale(outputs)

    def step(self, optimizer: AnyOptimizer, *args: Any, **kwargs: Any) -> Any:
        result = super().step(optimizer, *args, **kwargs)
        if all(self._stages.get(id(one)) == STEPPED for one in self.optimizers):
            self.update()
        return result

    def _update_if_stepped(self) -> None:
        if STEPPED in self._stages.values():
            self.update()

    def _reduce(self, flag: RawArray) -> None:
        if self.is_shared:
            super()._reduce(flag)

    def is_unscaled(self, optimizer: AnyOptimizer) -> bool:
        """Returns whether the optimizer's gradients were divided by the scale."""
        return self._stages.get(id(optimizer)) == UNSCALED

    def discard(self, optimizer: AnyOptimizer) -> None:
        """Drops the flags of gradients that were reset before a step."""
        if self.is_unscaled(optimizer):
            del self._stages[id(optimizer)], self._found[id(optimizer)]

    def state_dict(self) -> StateDict:
        self._update_if_stepped()
        return super().state_dict()

    def _reason(self) -> str:
        """Returns the last losses of all ranks, which raise together."""
        if self.loss is None or self._group is not None or not self.is_shared:
            return super()._reason()
        losses = world.all_gather_object(self.loss.tolist())
        return "the last loss was " + ", ".join(f"{loss} on rank {i}" for i, loss in enumerate(losses))
