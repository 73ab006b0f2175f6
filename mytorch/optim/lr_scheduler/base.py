"""LRScheduler: the base class of the learning rate schedules."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...backends.door import in_force
from ...core.tensor import Tensor
from ..optimizer import Optimizer
from ..options import as_number, check_kind
from ..param_groups import ParamGroup


def _noted(step: Callable) -> Callable:
    """Returns `step`; while a program is captured, a function that makes each run of it call `step`."""

    @functools.wraps(step)
    def call(self: LRScheduler, *args: object, **kwargs: object) -> None:
        if in_force().takes_call(self.step, args, kwargs):
            return None
        return step(self, *args, **kwargs)

    return call


class LRScheduler:
    """Base of the schedules: subclasses define `get_lr`.

    Args:
        optimizer: its groups' `lr` become the `base_lrs` (and stay in the groups as `initial_lr`).
        last_epoch: the number of steps done before; -1 to start. To resume, `load_state_dict` is simpler.

    Attributes:
        last_epoch: the number of steps done.
        base_lrs: the initial rate of each group.

    Raises:
        TypeError: `optimizer` is no Optimizer.
        KeyError: `last_epoch` was given, but the groups have no `initial_lr`.
    """

    _is_initial = False
    _get_lr_called_within_step = False
    _not_saved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        check_optimizer(optimizer)
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
        self._initial_step()

    def __init_subclass__(cls, **kwargs: object):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _noted(cls.step)

    def _initial_step(self) -> None:
        """Sets the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """Returns the rates of epoch `last_epoch`, computed from the groups' current ones."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define get_lr()")

    def get_last_lr(self) -> list[float]:
        """Returns the rate of each group, as the last step set it."""
        return self._last_lr

    @_noted
    def step(self, epoch: int | None = None) -> None:
        """Advances by one epoch (or iteration); call it after `optimizer.step()`.

        Args:
            epoch: jumps to this epoch, by the closed form if the schedule has one; deprecated in PyTorch.
        """
        if self._step_count == 1 and not self.optimizer._stepped:
            warnings.warn(
                "lr_scheduler.step() was called before optimizer.step(): "
                "the first rate of the schedule is skipped",
                stacklevel=3,
            )
        self._step_count += 1
        if epoch is not None:
            warn_of_epoch()
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed_form = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        self._set_rates(closed_form or self.get_lr)

    def _set_rates(self, rates: Callable[[], list[float]]) -> None:
        self._get_lr_called_within_step = True
        try:
            for group, lr in zip(self.optimizer.param_groups, rates(), strict=True):
                set_rate(group, lr)
        finally:
            self._get_lr_called_within_step = False
        self._last_lr = self._current()

    def _current(self) -> list[float]:
        return rates_of(self.optimizer)

    def _expect_step(self) -> None:
        """Warns if `get_lr` is called outside `step`: it would return the next step's rates."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "get_lr() is for the schedule itself; get_last_lr() returns the current rates", stacklevel=3
            )

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name not in self._not_saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned; the rates themselves are in the optimizer's state.

        Raises:
            ValueError: a number or a list is of another type, or `last_epoch` is less than -1.
        """
        for name, value in state_dict.items():
            if value is not None:  # PyTorch has None where a list was passed
                check_kind(name, self.__dict__.get(name), value)
        epoch = state_dict.get("last_epoch")
        if "last_epoch" in self.__dict__ and (epoch is None or epoch < -1):
            raise ValueError(f"last_epoch must be a number of at least -1, got {epoch}")
        self.__dict__.update(state_dict)


def check_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def rates_of(optimizer: Optimizer) -> list[float]:
    return [as_number(group["lr"]) for group in optimizer.param_groups]


def set_rate(group: ParamGroup, lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].data.fill_(lr)
    else:
        group["lr"] = as_number(lr)


def for_each_group(name: str, optimizer: Optimizer, value: object) -> list[float]:
    """Returns an option for every group: a list as it is, or one number repeated.

    Raises:
        ValueError: the length of the list isn't the number of groups.
    """
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [as_number(value)] * count
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {count}."
        )
    return [as_number(v) for v in value]


def warn_of_epoch() -> None:
    warnings.warn(
        "the epoch parameter in `scheduler.step()` is deprecated; `scheduler.step()` advances by one",
        stacklevel=3,
    )
