"""The part of the Accelerator for loops with more batches on some processes than on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from .. import distributed as dist
from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..core.tensor import Tensor
from ..distributed.ddp import DistributedDataParallel
from ..distributed.join import Join, Joinable, JoinHook
from ..nn.module import Module
from . import world
from .gradient_state import GradientState
from .optimizer import AcceleratedOptimizer
from .saving import copied
from .scheduler import AcceleratedScheduler
from .shared_grad_scaler import SharedScaler
from .stateful import StateDict


class Joining:
    """join_uneven_inputs."""

    even_batches: bool
    gradient_state: GradientState
    scaler: SharedScaler | None
    _optimizers: list[AcceleratedOptimizer]
    _schedulers: list[AcceleratedScheduler]
    _loaders: list

    @contextmanager
    def join_uneven_inputs(
        self, joinables: Sequence[Module], even_batches: bool | None = None
    ) -> Iterator[None]:
        """Context of a loop: a process without more batches follows the others until all have finished.

            with accelerator.join_uneven_inputs([model], even_batches=False):
                for x, y in loader:
                    ...

        A process that has finished contributes zeros to the averages (see `DistributedDataParallel.join`).
        After the loop all have the weights, optimizers, schedules and loss scale of one that trained until
        the end. The loop must not call other collectives, such as `gather`; a window of several micro-batches
        must end with the same one on all processes. With one process or even batches it does nothing.

        Args:
            joinables: the prepared models.
            even_batches: sets that of the prepared loaders, for the loop; None keeps it.

        Raises:
            TypeError: one of `joinables` isn't a prepared model that trains.
            ValueError: no joinables; a prepared ZeroRedundancyOptimizer; see `PreparedLoader.even_batches`.
        """
        if world.world_size() == 1:
            yield
            return
        models = list(joinables)
        for model in models:
            if not isinstance(model, DistributedDataParallel):
                raise TypeError(
                    f"join_uneven_inputs(): expected prepared models that train, got {type(model).__name__}"
                )
        with ExitStack() as at_end:
            for loader in self._loaders if even_batches is not None else ():
                at_end.callback(setattr, loader, "even_batches", loader.even_batches)
                loader.even_batches = even_batches
            if not (self.even_batches if even_batches is None else even_batches):
                self._check_joinables(models)
                at_end.callback(self._set_joining, False)
                self._set_joining(True)
                followers = _Followers(self, models)
                at_end.enter_context(Join([*models, followers]))
                at_end.callback(followers.keep_masters)  # before the others' weights, which are rounded
            yield

    def _set_joining(self, value: bool) -> None:
        self.gradient_state.is_joining = value
        if self.scaler is not None:
            self.scaler.is_shared = not value  # the averaged gradients are the same everywhere

    def _check_joinables(self, models: list[Module]) -> None:
        if not models:
            raise ValueError("join_uneven_inputs(): expected at least one joinable")
        for prepared in self._optimizers:
            inner = getattr(prepared.optimizer, "optimizer", prepared.optimizer)
            if isinstance(inner, Joinable):
                raise ValueError(
                    f"join_uneven_inputs(): with {type(inner).__name__} a process without data would have to "
                    "update its part of the weights, and can't see how the others clip; use even batches"
                )


class _Followers(Joinable, JoinHook):
    """Copies the state beside the model to the processes that made fewer steps."""

    def __init__(self, accelerator: Joining, models: list[DistributedDataParallel]):
        self.accelerator, self.models = accelerator, models
        self.group = models[0].join_process_group
        self.masters: list[list[Tensor] | None] = []  # of each optimizer; None without mixed precision

    join_process_group = property(lambda self: self.group)
    _optimizers = property(lambda self: [prepared.optimizer for prepared in self.accelerator._optimizers])

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return self

    def keep_masters(self) -> None:
        halves = [isinstance(optimizer, MixedPrecisionOptimizer) for optimizer in self._optimizers]
        pairs = zip(self._optimizers, halves, strict=True)
        self.masters = copied([optimizer.masters() if is_half else None for optimizer, is_half in pairs])

    def post_hook(self, is_last_joiner: bool) -> None:
        lasts: list = [None] * world.world_size(self.group)
        dist.all_gather_object(lasts, is_last_joiner, group=self.group)
        box = [copied(self._states()) if is_last_joiner else None]
        dist.broadcast_object_list(box, group=self.group, group_src=lasts.index(True))
        if not is_last_joiner:
            self._load(box[0])
            self._reset_grads()
        for optimizer, masters in zip(self._optimizers, box[0]["masters"], strict=True):
            if masters is not None:
                optimizer.load_masters(masters)

    def _states(self) -> StateDict:
        optimizers, scaler = self._optimizers, self.accelerator.scaler
        return {
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "masters": self.masters,
            "schedulers": [scheduler.state_dict() for scheduler in self.accelerator._schedulers],
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def _reset_grads(self) -> None:
        """Resets the gradients of the others' steps, which the next ones would accumulate."""
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        for model in self.models:
            model.zero_grad()

    def _load(self, states: StateDict) -> None:
        for optimizer, state in zip(self._optimizers, states["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for scheduler, state in zip(self.accelerator._schedulers, states["schedulers"], strict=True):
            scheduler.load_state_dict(state)
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(states["scaler"])
