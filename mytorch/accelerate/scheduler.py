"""AcceleratedScheduler: a schedule that goes on only with its optimizers."""

from __future__ import annotations

from typing import Any

from .optimizer import AcceleratedOptimizer
from .state import GradientState


class AcceleratedScheduler:
    """Wraps a schedule: `step()` counts updates, not micro-batches, and not updates that were left out.

    It goes on by one for each update, whatever the number of processes (Hugging Face's goes on by that
    number): plan it for `len(prepared_loader) / gradient_accumulation_steps` updates an epoch.

    Args:
        scheduler: has `step()`, `state_dict()` and `load_state_dict()`.
        optimizers: those that it belongs to.
        state: says when a window is complete.
        step_with_optimizer: False goes on with each call.
    """

    def __init__(
        self, scheduler: Any, optimizers: list[AcceleratedOptimizer], state: GradientState,
        step_with_optimizer: bool = True,
    ):  # fmt: skip
        self.scheduler, self.optimizers, self.gradient_state = scheduler, optimizers, state
        self.step_with_optimizer = step_with_optimizer

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Go on, if the optimizers did."""
        if self.step_with_optimizer:
            if not self.gradient_state.sync_gradients:
                return
            if any(optimizer.step_was_skipped for optimizer in self.optimizers):
                return
        self.scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[float]:
        return self.scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)
