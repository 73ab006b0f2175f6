"""Schedules that cycle the rate, and the momentum in the opposite direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..optimizer import Optimizer
from ..param_groups import ParamGroup
from .base import LRScheduler, check_optimizer, for_each_group, set_rate
from .functions import attributes_of


class _WithMomentum(LRScheduler):
    """A schedule that also sets `momentum`, or beta1 where an optimizer has `betas`."""

    def _start_momentum(
        self, base: float | list[float], highest: float | list[float], last_epoch: int
    ) -> tuple[list[float], list[float]]:
        """Sets the groups to their highest momentum; returns the base and the highest one of each."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled; "
                f"{type(self.optimizer).__name__} has neither"
            )
        self.use_beta1 = "betas" in defaults
        bases = for_each_group("base_momentum", self.optimizer, base)
        highests = for_each_group("max_momentum", self.optimizer, highest)
        if last_epoch == -1:
            for group, low, high in zip(self.optimizer.param_groups, bases, highests, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        return bases, highests

    def _set_momentum(self, group: ParamGroup, momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """lr cycles linearly from `base_lr` up to `max_lr` and down again.

        lr = base_lr + (max_lr - base_lr) height scale,     momentum = max - (max - base) height scale

    height rises from 0 to 1 in `step_size_up` steps and falls to 0 in `step_size_down`; scale is 1
    ("triangular"), 2^(1 - cycle) ("triangular2", cycles counted from 1) or gamma^steps ("exp_range").

    Args:
        base_lr, max_lr: a number, or a list with one for each group.
        step_size_down: by default `step_size_up`.
        scale_fn: replaces mode; from the cycle or the number of steps to the scale.
        scale_mode: the argument of `scale_fn`, "cycle" or "iterations".
        cycle_momentum: whether the momentum cycles inversely, from max_momentum down to base_momentum.

    Raises:
        ValueError: an unknown mode, lists of another length, or an optimizer without momentum.
        TypeError: `optimizer` is no Optimizer.

    Source: Smith, 2017. https://arxiv.org/abs/1506.01186

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=1.0).get_last_lr()
    [0.1]
    """

    _not_saved = ("optimizer", "_scale_fn_custom")

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular",
        gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
        cycle_momentum: bool = True, base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9, last_epoch: int = -1,
    ):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = for_each_group("base_lr", optimizer, base_lr)
        self.max_lrs = for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"mode is invalid and scale_fn is None: {mode!r}")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            bases, highests = self._start_momentum(base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = bases, highests
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Returns the scale of a cycle, or of a number of steps."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return self.gamma**x
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1)

    def get_lr(self) -> list[float]:
        self._expect_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes but the optimizer and `scale_fn`; of a callable object its attributes."""
        return {**super().state_dict(), "_scale_fn_custom": attributes_of(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if state_dict["_scale_fn_custom"] is not None:
            self._scale_fn_custom.__dict__.update(state_dict["_scale_fn_custom"])


class OneCycleLR(_WithMomentum):
    """One cycle for the whole training: up from max_lr / div_factor to `max_lr`, and down to almost 0.

    In the first `pct_start` of the steps lr rises, then it falls to max_lr / div_factor / final_div_factor
    (with `three_phase`: in equally many steps to the initial lr, in the rest to that), along half a cosine or
    linearly. The momentum falls from max_momentum to base_momentum and rises again.

    Args:
        max_lr: a number, or a list with one for each group.
        total_steps: the number of steps; by default `epochs` times `steps_per_epoch`.
        anneal_strategy: "cos" or "linear".

    Raises:
        ValueError: no number of steps, an option out of its range, lists of another length, an optimizer
            without momentum, or (in `step`) more steps than `total_steps`.
        TypeError: `optimizer` is no Optimizer.

    Source: Smith & Topin, 2018. https://arxiv.org/abs/1708.07120

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10).get_last_lr()
    [0.040000000000000036]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _number_of_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        highest = for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, highest, strict=True):
                group["initial_lr"], group["max_lr"] = lr / div_factor, lr
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _interpolate(self, start: float, end: float, fraction: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * fraction + start
        return end + (start - end) / 2 * (math.cos(math.pi * fraction) + 1)

    def get_lr(self) -> list[float]:
        self._expect_step()
        step, start = self.last_epoch, 0.0
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                break
            start = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        fraction = (step - start) / (phase["end_step"] - start)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._interpolate(*ends, fraction))
        return [
            self._interpolate(group[phase["start_lr"]], group[phase["end_lr"]], fraction)
            for group in self.optimizer.param_groups
        ]


def _number_of_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    given = {"total_steps": total_steps}
    if total_steps is None:
        given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        if None in given.values():
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(given.values())


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
    """Returns each phase's last step, and the names of the group options it interpolates between."""
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    up = pct_start * total_steps
    rows = [(float(up - 1), "initial_lr", "max_lr", "max_momentum", "base_momentum")]
    if three_phase:
        rows.append((float(2 * up - 2), "max_lr", "initial_lr", "base_momentum", "max_momentum"))
        rows.append((total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
    else:
        rows.append((total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"))
    return [dict(zip(names, row, strict=True)) for row in rows]
