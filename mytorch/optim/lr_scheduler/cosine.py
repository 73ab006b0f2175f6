"""Schedules along a cosine."""

from __future__ import annotations

import math

from ..optimizer import Optimizer
from .base import LRScheduler


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base_lr - eta_min) (1 + cos(pi epoch / T_max)) / 2: a cosine of period 2 T_max.

    Source: Loshchilov & Hutter, 2017, without the restarts. https://arxiv.org/abs/1608.03983

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        self._expect_step()
        epoch, period = self.last_epoch, self.T_max
        if self._is_initial:
            return self._current()
        # The previous rate was eta_min: the ratio below would be infinite.
        if (epoch - 1 - period) % (2 * period) == 0:
            rise = (1 - math.cos(math.pi / period)) / 2
            return [
                lr + (base - self.eta_min) * rise
                for base, lr in zip(self.base_lrs, self._current(), strict=True)
            ]
        ratio = (1 + math.cos(math.pi * epoch / period)) / (1 + math.cos(math.pi * (epoch - 1) / period))
        return [ratio * (lr - self.eta_min) + self.eta_min for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        fraction = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * fraction for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from base_lr down to eta_min, restarted with a T_mult times longer period each time.

        lr = eta_min + (base_lr - eta_min) (1 + cos(pi T_cur / T_i)) / 2

    T_cur is the number of epochs since the last restart, T_i that between two restarts: T_0, T_0 T_mult, ….
    `step(epoch)` takes fractions: `step(epoch + i / batches)` after batch i.

    Raises:
        ValueError: T_0 or T_mult isn't a positive integer, eta_min isn't a number, or an epoch is negative.

    Source: Loshchilov & Hutter, 2017. https://arxiv.org/abs/1608.03983

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ):
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        self._expect_step()
        fraction = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * fraction for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._set_position(epoch)
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr)

    def _set_position(self, epoch: float) -> None:
        """Sets T_cur and T_i for an epoch: restart n is at T_0 (T_mult^n - 1) / (T_mult - 1)."""
        if epoch < self.T_0:
            self.T_cur, self.T_i = epoch, self.T_0
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


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

    >>> optimizer = optim.SGD([mytorch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.WarmupCosineLR(optimizer, warmup_steps=4, decay_steps=10)
    >>> schedule.get_last_lr()
    [0.2]
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, decay_steps: int, min_lr: float = 0.0,
        last_epoch: int = -1,
    ):
        if not 0 <= warmup_steps <= decay_steps:
            raise ValueError(f"warmup_steps={warmup_steps} must be in 0 … decay_steps={decay_steps}")
        if min_lr < 0:
            raise ValueError(f"min_lr must not be negative, got {min_lr}")
        self.warmup_steps, self.decay_steps, self.min_lr = warmup_steps, decay_steps, min_lr
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        self._expect_step()
        step, length = self.last_epoch, self.decay_steps - self.warmup_steps
        if step < self.warmup_steps:
            return [base * (step + 1) / (self.warmup_steps + 1) for base in self.base_lrs]
        if step >= self.decay_steps:
            return [self.min_lr for _ in self.base_lrs]
        fraction = (1 + math.cos(math.pi * ((step - self.warmup_steps) / length))) / 2
        return [self.min_lr + (base - self.min_lr) * fraction for base in self.base_lrs]
