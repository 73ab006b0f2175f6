"""AcceleratedScheduler: a schedule that steps only when its optimizers do."""

from __future__ import annotations

from typing import Any

from .gradient_state import GradientState
from .optimizer import AcceleratedOptimizer
from .stateful import Schedule, StateDict


class AcceleratedScheduler:
    """Wraps a schedule: `step()` counts updates, without micro-batches and skipped updates.

    It advances by one an update, whatever the number of processes (Hugging Face's advances by that
    number): plan it for `len(prepared_loader) / gradient_accumulation_steps` updates an epoch.

    Args:
        scheduler: any object with `step()`, `state_dict()` and `load_state_dict()`.
        optimizers: the optimizers whose rates it sets.
        state: knows when a window is complete.
        step_with_optimizer: if False, each call steps.
    """

    def __init__(
        self, scheduler: Schedule, optimizers: list[AcceleratedOptimizer], state: GradientState,
        step_with_optimizer: bool = True,
    ):
        self.scheduler, self.optimizers, self.gradient_state = scheduler, optimizers, state
        self.step_with_optimizer = step_with_optimizer

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Advances the schedule, if the optimizers stepped."""
        if self.step_with_optimizer:
            if not self.gradient_state.sync_gradients:
                return
            if any(optimizer.step_was_skipped for optimizer in self.optimizers):
                return
        self.scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[float]:
        return self.scheduler.get_last_lr()

    def state_dict(self) -> StateDict:
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        self.scheduler.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)
