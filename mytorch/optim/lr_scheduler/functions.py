"""Schedules defined by functions."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler


class _OfFunctions(LRScheduler):
    """A schedule by a function from the epoch to a factor, or a list with one for each group.

    Raises:
        ValueError: another number of functions than of groups.
        TypeError: one isn't callable.
    """

    _not_saved = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def _factors(self) -> list[float]:
        return [function(self.last_epoch) for function in self.lr_lambdas]

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes but the optimizer and the functions; of a callable object its attributes."""
        return {**super().state_dict(), "lr_lambdas": [attributes_of(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)


def attributes_of(function: Callable | None) -> dict[str, object] | None:
    """Returns what is saved of a function: the attributes of a callable object, None for a plain function."""
    return None if function is None or isinstance(function, types.FunctionType) else dict(function.__dict__)


class LambdaLR(_OfFunctions):
    """lr = base_lr * lr_lambda(epoch).

    Args:
        lr_lambda: a function from the epoch to a factor, or a list with one for each group.

    Raises:
        ValueError: another number of functions than of groups.

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[float]:
        self._expect_step()
        return [base * factor for base, factor in zip(self.base_lrs, self._factors(), strict=True)]


class MultiplicativeLR(_OfFunctions):
    """lr = (the previous rate) * lr_lambda(epoch), from the first step on.

    Args:
        lr_lambda: a function from the epoch to a factor, or a list with one for each group.

    Raises:
        ValueError: another number of functions than of groups.
        TypeError: one isn't callable.

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.5)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[float]:
        self._expect_step()
        if self._is_initial:
            return self._current()
        return [lr * factor for lr, factor in zip(self._current(), self._factors(), strict=True)]
