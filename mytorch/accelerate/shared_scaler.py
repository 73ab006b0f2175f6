"""SharedScaler: one loss scale for all optimizers of an Accelerator."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from . import process
from .scaler import STEPPED, UNSCALED, GradScaler


class SharedScaler(GradScaler):
    """A GradScaler that adapts by itself when all optimizers have stepped, or else with the next loss.

    PyTorch's `update()` after the first of two optimizers' steps would divide the gradients of the second by
    another scale than they were multiplied by.

    Attributes:
        optimizers: those that share it.
        loss: the last one, to be named when training can't go on.
        is_shared: processes tell each other of inf and NaN; not where some have no more data, and the others
            find the same, since their gradients are averaged.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.optimizers: list[Any] = []
        self.loss: Tensor | None = None
        self.is_shared = True

    def scale(self, outputs: Any) -> Any:
        self._settle()
        return super().scale(outputs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().step(optimizer, *args, **kwargs)
        if all(self._stages.get(id(one)) == STEPPED for one in self.optimizers):
            self.update()
        return result

    def _settle(self) -> None:
        if STEPPED in self._stages.values():
            self.update()

    def _share(self, flag: Any) -> None:
        if self.is_shared:
            super()._share(flag)

    def is_unscaled(self, optimizer: Any) -> bool:
        """Were its gradients divided by the scale?"""
        return self._stages.get(id(optimizer)) == UNSCALED

    def forget_grads(self, optimizer: Any) -> None:
        """They are gone, so what was found in them doesn't count, unless there was a step."""
        if self.is_unscaled(optimizer):
            del self._stages[id(optimizer)], self._found[id(optimizer)]

    def state_dict(self) -> dict[str, Any]:
        self._settle()
        return super().state_dict()

    def _reason(self) -> str:
        """The last losses: those of all ranks, since all of them raise together."""
        if self.loss is None or self._group is not None or not self.is_shared:
            return super()._reason()
        losses = process.all_gather_object(self.loss.tolist())
        return "the last loss was " + ", ".join(f"{loss} on rank {i}" for i, loss in enumerate(losses))
