"""Schedules composed of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, rates_of, set_rate
from .plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    """Several schedules of one optimizer, saved and loaded together."""

    _not_saved = ("optimizer", "_schedulers")

    def _set_schedulers(self, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} expects at least one scheduler, got none")
        optimizer = optimizer or getattr(schedulers[0], "optimizer", None)
        for i, scheduler in enumerate(schedulers):
            kind = type(scheduler).__name__
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name}: scheduler {i} ({kind}) has no attribute `optimizer`")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name}: scheduler {i} is a ReduceLROnPlateau, whose step() needs the metrics"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{name}: scheduler {i} ({kind}) has another optimizer")
        self.optimizer, self._schedulers = optimizer, list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        states = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**super().state_dict(), "_schedulers": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Combined):
    """One schedule after the other: `schedulers[i + 1]` starts at epoch `milestones[i]`, with its epoch 0.

    Args:
        schedulers: schedules of the same optimizer.
        milestones: the epochs of the changes, increasing, one less than schedules.

    Raises:
        ValueError: no schedules, not one milestone less than schedules, one of another optimizer, or one that
            needs metrics.
        TypeError: one is no schedule.

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> warmup = optim.lr_scheduler.ConstantLR(optimizer, 0.1)
    >>> decay = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2]).get_last_lr()
    [0.1]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ):
        self._set_schedulers(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone less than schedulers, got {len(milestones)} milestones "
                f"and {len(schedulers)} schedulers"
            )
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        self._undo_first_steps()
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo_first_steps(self) -> None:
        """Undoes the step of each schedule's constructor, since all but one start later."""
        stack = list(self._schedulers)
        while stack:
            scheduler = stack.pop()
            if isinstance(scheduler, _Combined):
                stack += scheduler._schedulers
            else:
                scheduler.last_epoch -= 1

    def step(self) -> None:
        """Advances by one epoch (or iteration); call it after `optimizer.step()`."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """Several schedules at once: a step is a step of each, so their factors multiply.

    Args:
        schedulers: schedules of the same optimizer.
        optimizer: the schedules' optimizer, by default that of the first one.

    Raises:
        ValueError: no schedules, one of another optimizer, or one that needs metrics.
        TypeError: one is no schedule.

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> halved = optim.lr_scheduler.ConstantLR(optimizer, 0.5)
    >>> decay = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> optim.lr_scheduler.ChainedScheduler([halved, decay]).get_last_lr()
    [0.5]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        self._set_schedulers(optimizer, schedulers)
        self._last_lr = rates_of(self.optimizer)

    def step(self) -> None:
        """Advances by one epoch (or iteration); call it after `optimizer.step()`."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = rates_of(self.optimizer)
