"""The schedule that reduces the rate when a metric stops improving."""

from __future__ import annotations

import math
from typing import SupportsFloat

from ..optimizer import Optimizer
from .base import LRScheduler, check_optimizer, rates_of, set_rate, warn_of_epoch


class ReduceLROnPlateau(LRScheduler):
    """lr <- max(factor lr, min_lr) when a metric has not improved for more than `patience` epochs.

    An improvement is, for mode "min" and "max":

        threshold_mode "rel"    metric < best (1 - threshold)      metric > best (1 + threshold)
        threshold_mode "abs"    metric < best - threshold          metric > best + threshold

    Args:
        cooldown: the number of epochs after a change that aren't counted.
        min_lr: a number, or a list with one for each group.
        eps: smaller changes of the rate are skipped.

    Raises:
        ValueError: factor is 1 or more, an unknown mode, or another number of min_lrs than of groups.
        TypeError: `optimizer` is no Optimizer.

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    >>> schedule.step(1.0)
    >>> schedule.step(2.0)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float | list[float] = 0, eps: float = 1e-8,
    ):
        if factor >= 1:
            raise ValueError(f"Factor should be < 1.0, got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown, it is min or max")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown, it is rel or abs")
        check_optimizer(optimizer)
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        several = isinstance(min_lr, (list, tuple))
        if several and len(min_lr) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
        self.default_min_lr = None if several else min_lr
        self.min_lrs = list(min_lr) if several else [min_lr] * groups
        self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.last_epoch = 0
        self._last_lr = rates_of(optimizer)
        self._reset()

    def _reset(self) -> None:
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """Advances by one epoch.

        Args:
            metrics: the metric, a number or anything that `float` converts.
        """
        current = float(metrics)
        if epoch is not None:
            warn_of_epoch()
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.num_bad_epochs += 1
        if self._improves(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = rates_of(self.optimizer)

    def _improves(self, metric: float, best: float) -> bool:
        margin = -self.threshold if self.mode == "min" else self.threshold
        wanted = best * (1 + margin) if self.threshold_mode == "rel" else best + margin
        return metric < wanted if self.mode == "min" else metric > wanted

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"the optimizer has {len(groups)} param groups, but there are {len(self.min_lrs)} "
                    "min_lrs; add to `min_lrs` what the new groups need"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lr, lowest in zip(groups, rates_of(self.optimizer), self.min_lrs, strict=True):
            reduced = max(lr * self.factor, lowest)
            if lr - reduced > self.eps:
                set_rate(group, reduced)
