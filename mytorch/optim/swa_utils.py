"""Averages of a model's weights over its training: equal (SWA) or exponential (EMA)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..nn.layers.batch_norm import _BatchNorm
from ..nn.module import Module
from .lr_scheduler.base import LRScheduler, check_optimizer, for_each_group
from .optimizer import Optimizer

AverageOne = Callable[[Tensor, Tensor, Tensor], Tensor]
AverageAll = Callable[[list[Tensor], list[Tensor], Tensor], None]


def get_swa_avg_fn() -> AverageOne:
    """The equal mean: average + (current - average) / (n + 1)."""

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> AverageOne:
    """The exponential mean: decay average + (1 - decay) current.

    Raises:
        ValueError: `decay` is not in [0, 1].
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Tensor) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_multi_avg_fn() -> AverageAll:
    """`get_swa_avg_fn` for all parameters in one call, in place."""
    return _for_all(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageAll:
    """`get_ema_avg_fn` for all parameters in one call, in place."""
    return _for_all(get_ema_avg_fn(decay))


def _for_all(average: AverageOne) -> AverageAll:
    @no_grad()
    def update(averaged_params: list[Tensor], current_params: list[Tensor], num_averaged: Tensor) -> None:
        for averaged, current in zip(averaged_params, current_params, strict=True):
            averaged.copy_(average(averaged, current, num_averaged))

    return update


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


class AveragedModel(Module):
    """A copy of a model whose parameters are the mean of what the model's were: `update_parameters(model)`.

        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
        …                                   # after each step:  averaged.update_parameters(model)
        averaged(x)

    Args:
        model: the model to copy.
        device: of the copy; by default the model's.
        avg_fn: from (average, current value, how many were averaged) to the new average; if neither it nor
            multi_avg_fn is given, the equal mean.
        multi_avg_fn: the same for lists of all parameters, in place.
        use_buffers: average the buffers, too; else they are those of the model.

    Attributes:
        module: the copy.
        n_averaged: how many were averaged, a 0-d tensor. The first one is copied as it is.

    Raises:
        AssertionError: both functions are given.

    Source: Izmailov et al., 2018. https://arxiv.org/abs/1803.05407
    """

    def __init__(
        self, model: Module, device: str | None = None, avg_fn: AverageOne | None = None,
        multi_avg_fn: AverageAll | None = None, use_buffers: bool = False,
    ):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", Tensor(np.zeros((), np.int64), device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Updates the mean with the model's current parameters."""
        mine, theirs = ([t.detach() for t in self._averaged(m)] for m in (self.module, model))
        theirs = [t.to(own.device) for own, t in zip(mine, theirs, strict=True)]
        if self.n_averaged == 0:
            for own, t in zip(mine, theirs, strict=True):
                own.copy_(t)
        else:
            average = self.multi_avg_fn or _for_all(self.avg_fn or get_swa_avg_fn())
            for own, t in _by_kind(mine, theirs):
                average(own, t, self.n_averaged.to(own[0].device))
        if not self.use_buffers:
            for own, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(buffer.detach().to(own.device))
        self.n_averaged += 1

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return chain(model.parameters(), model.buffers() if self.use_buffers else ())


def _by_kind(mine: list[Tensor], theirs: list[Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Returns both lists, divided by device and dtype."""
    kinds: dict[tuple[str, np.dtype], tuple[list[Tensor], list[Tensor]]] = {}
    for own, t in zip(mine, theirs, strict=True):
        some, others = kinds.setdefault((own.device.full_name, own.dtype), ([], []))
        some.append(own)
        others.append(t)
    return list(kinds.values())


@no_grad()
def update_bn(loader: Iterable[object], model: Module, device: str | None = None) -> None:
    """Recomputes the running statistics of all batch norms, which averaged weights need.

    Args:
        loader: batches, each a tensor, or a list or tuple whose first item is one.
        device: the batches are moved to it.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the equal mean over all batches
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch if device is None else batch.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """lr changes from its current value to `swa_lr` within `anneal_epochs` epochs, and then stays constant.

    Args:
        swa_lr: a number, or a list with one for each group.
        anneal_strategy: "cos" (along half a cosine) or "linear".

    Raises:
        ValueError: an unknown strategy, negative `anneal_epochs`, or not as many rates as groups.
        TypeError: `optimizer` is no Optimizer.
    """

    _not_saved = ("optimizer", "anneal_func")

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | list[float], anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ):
        check_optimizer(optimizer)
        rates = for_each_group("swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _fraction(self, step: int) -> float:
        """Returns the weight of swa_lr in the rate after `step` steps."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        self._expect_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._fraction(step - 1), self._fraction(step)
        rates = []
        for group, lr in zip(self.optimizer.param_groups, self._current(), strict=True):
            target = group["swa_lr"]
            start = target if before == 1 else (lr - before * target) / (1 - before)
            rates.append(target * now + start * (1 - now))
        return rates
