"""
Learning rate schedules: after each epoch or iteration, `scheduler.step()` sets the `lr` of every group.

Each class has PyTorch's recursion (the next rate from the one that the group has now), so schedules can be
chained, and a rate that somebody changed by hand stays changed. A closed form serves to jump to an epoch.
"""

from __future__ import annotations

import math
import types
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from ..tensor import Tensor
from .optimizer import Optimizer, as_number

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "LRScheduler", "LambdaLR", "LinearLR", "SequentialLR", "StepLR",
    "WarmupCosineLR",
]  # fmt: skip


class LRScheduler:
    """Base of the schedules: subclasses define `get_lr`.

    Args:
        optimizer: its groups' `lr` become the `base_lrs` (and stay in the groups as `initial_lr`).
        last_epoch: how many steps were done before; -1 to begin. To resume, `load_state_dict` is simpler.

    Attributes:
        last_epoch: the number of steps done.
        base_lrs: the rate of each group that the schedule starts from.

    Raises:
        TypeError: `optimizer` is no Optimizer.
        KeyError: `last_epoch` was given, but the groups have no `initial_lr`.
    """

    _is_initial = False
    _not_saved = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", as_number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming with "
                    f"last_epoch={last_epoch}; load the optimizer's state first, or use last_epoch=-1"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._begin()

    def _begin(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        del self._is_initial

    def get_lr(self) -> list[float]:
        """The rates of epoch `last_epoch`, from those that the groups have now."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define get_lr()")

    def get_last_lr(self) -> list[float]:
        """The rate of each group, as the last step set it."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on by one epoch (or iteration); call it after `optimizer.step()`.

        Args:
            epoch: jump there, by the closed form if the schedule has one.
        """
        if (
            self._step_count == 1
            and not self.optimizer._stepped
            and type(self.optimizer).step is Optimizer.step
        ):
            warnings.warn(
                "lr_scheduler.step() was called before optimizer.step(): "
                "the first rate of the schedule is skipped",
                stacklevel=2,
            )
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed_form = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        rates = self.get_lr() if closed_form is None else closed_form()
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            _set_lr(group, lr)
        self._last_lr = self._current()

    def _current(self) -> list[float]:
        return [as_number(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name not in self._not_saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave. The rates themselves are the optimizer's: load its state, too."""
        self.__dict__.update(state_dict)


def _set_lr(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].data.fill_(lr)
    else:
        group["lr"] = lr


class LambdaLR(LRScheduler):
    """lr = base_lr * lr_lambda(epoch).

    Args:
        lr_lambda: a function from the epoch to a factor, or a list with one for each group.

    Raises:
        ValueError: there are not as many functions as groups.
    """

    _not_saved = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):  # fmt: skip
        groups = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and the functions; of a callable object, its attributes."""
        objects = [None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": objects}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                f.__dict__.update(attributes)


class StepLR(LRScheduler):
    """lr = base_lr * gamma^(epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return [lr * self.gamma for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """lr = base_lr * factor before epoch `total_iters`, then base_lr.

    Raises:
        ValueError: `factor` is not between 0 and 1.
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1
    ):
        if not 0 <= factor <= 1:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._current()]
        if self.last_epoch == self.total_iters:
            return [lr * (1 / self.factor) for lr in self._current()]
        return self._current()

    def _get_closed_form_lr(self) -> list[float]:
        factor = self.factor if self.last_epoch < self.total_iters else 1
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """lr = base_lr * f, where f goes in a straight line from `start_factor` to `end_factor`, and stays there.

        f = start_factor + (end_factor - start_factor) * min(epoch, total_iters) / total_iters

    Raises:
        ValueError: `start_factor` is not in (0, 1], or `end_factor` not in [0, 1].
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ):  # fmt: skip
        if not 0 < start_factor <= 1:
            raise ValueError(f"Starting multiplicative factor expected to be in (0, 1], got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"Ending multiplicative factor expected to be between 0 and 1, got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._current()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        ratio = 1 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return [lr * ratio for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        done = min(self.last_epoch, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [base * factor for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base_lr - eta_min) (1 + cos(pi epoch / T_max)) / 2, down in T_max epochs and up again.

    Source: Loshchilov & Hutter, 2017, without the restarts. https://arxiv.org/abs/1608.03983
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        epoch, period = self.last_epoch, self.T_max
        if self._is_initial:
            return self._current()
        # Where the rate before was eta_min, a ratio to it says nothing.
        if (epoch - 1 - period) % (2 * period) == 0:
            rise = (1 - math.cos(math.pi / period)) / 2
            return [
                lr + (base - self.eta_min) * rise
                for base, lr in zip(self.base_lrs, self._current(), strict=True)
            ]
        ratio = (1 + math.cos(math.pi * epoch / period)) / (1 + math.cos(math.pi * (epoch - 1) / period))
        return [ratio * (lr - self.eta_min) + self.eta_min for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class WarmupCosineLR(LRScheduler):
    """The schedule of GPT training: a linear warm-up, half a cosine down to `min_lr`, then constant.

        step < warmup_steps    lr = base_lr (step + 1) / (warmup_steps + 1)
        step < decay_steps     lr = min_lr + (base_lr - min_lr) (1 + cos(pi x)) / 2,
                               x = (step - warmup_steps) / (decay_steps - warmup_steps)
        after                  lr = min_lr

    Args:
        warmup_steps: length of the warm-up; 0 for none.
        decay_steps: the step at which `min_lr` is reached, counted from the start.
        min_lr: the last rate, the same for all groups; usually a tenth of the highest.

    Raises:
        ValueError: `warmup_steps` is negative or larger than `decay_steps`; `min_lr` is negative.

    Source: Brown et al., 2020, appendix B, with nanoGPT's steps. https://arxiv.org/abs/2005.14165
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, decay_steps: int, min_lr: float = 0.0,
        last_epoch: int = -1,
    ):  # fmt: skip
        if not 0 <= warmup_steps <= decay_steps:
            raise ValueError(f"warmup_steps={warmup_steps} must be in 0 … decay_steps={decay_steps}")
        if min_lr < 0:
            raise ValueError(f"min_lr must not be negative, got {min_lr}")
        self.warmup_steps, self.decay_steps, self.min_lr = warmup_steps, decay_steps, min_lr
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        step, length = self.last_epoch, self.decay_steps - self.warmup_steps
        if step < self.warmup_steps:
            return [base * (step + 1) / (self.warmup_steps + 1) for base in self.base_lrs]
        if step >= self.decay_steps:
            return [self.min_lr for _ in self.base_lrs]
        share = (1 + math.cos(math.pi * (step - self.warmup_steps) / length)) / 2
        return [self.min_lr + (base - self.min_lr) * share for base in self.base_lrs]


class SequentialLR(LRScheduler):
    """One schedule after the other: at epoch `milestones[i]` begins `schedulers[i + 1]`, with its epoch 0.

    Args:
        schedulers: schedules of the same optimizer.
        milestones: the epochs of the changes, rising, one less than schedules.

    Raises:
        ValueError: no schedules, not one milestone less than schedules, or another optimizer in one of them.
    """

    _not_saved = ("optimizer", "_schedulers")

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ):
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler")
        for i, scheduler in enumerate(schedulers):
            if getattr(scheduler, "optimizer", None) is not optimizer:
                raise ValueError(
                    f"SequentialLR: scheduler {i} ({type(scheduler).__name__}) has another optimizer"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone less than schedulers, got {len(milestones)} milestones "
                f"and {len(schedulers)} schedulers"
            )
        self.optimizer = optimizer
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            _set_lr(group, group["initial_lr"])
        self._undo_first_steps()
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._begin()
        self._last_lr = first.get_last_lr()

    def _undo_first_steps(self) -> None:
        """Each schedule took its first step when it was made, but all except one are to begin later."""
        for scheduler in self._schedulers:
            if isinstance(scheduler, SequentialLR):
                scheduler._undo_first_steps()
            else:
                scheduler.last_epoch -= 1

    def step(self) -> None:
        """Go on by one epoch (or iteration); call it after `optimizer.step()`."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
