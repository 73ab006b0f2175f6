"""The part of the Accelerator for loops that have more batches on some processes than on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from .. import distributed as dist
from ..distributed.ddp import DistributedDataParallel
from ..distributed.join import Join, Joinable, JoinHook
from . import process
from .mixed_precision import MixedPrecisionOptimizer
from .optimizer import AcceleratedOptimizer
from .saving import _copied
from .scheduler import AcceleratedScheduler
from .shared_scaler import SharedScaler
from .state import GradientState


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
        self, joinables: Sequence[Any], even_batches: bool | None = None
    ) -> Iterator[None]:
        """Context around a loop: a process without more batches follows the others until all are through.

            with accelerator.join_uneven_inputs([model], even_batches=False):
                for x, y in loader:
                    ...

        A process that is through gives zeros to the averages (see `DistributedDataParallel.join`). After the
        loop all have the weights, the optimizers, the schedules and the loss scale of one that trained until
        the end. Inside there are no other collectives, such as `gather`; a window of several micro-batches
        must end with the same one on all processes. With one process, and with even batches, it does nothing.

        Args:
            joinables: the prepared models.
            even_batches: what prepared loaders do inside; None leaves them as they are, which is for the
                Accelerator's `even_batches`.

        Raises:
            TypeError: one of `joinables` isn't a prepared model that trains.
            ValueError: there are none; a prepared ZeroRedundancyOptimizer; see `PreparedLoader.even_batches`.
        """
        if process.world_size() == 1:
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
                at_end.callback(followers.keep_masters)  # before the others' weights come, which are rounded
            yield

    def _set_joining(self, value: bool) -> None:
        self.gradient_state.is_joining = value
        if self.scaler is not None:
            self.scaler.is_shared = not value  # all have the same gradients, averaged

    def _check_joinables(self, models: list[Any]) -> None:
        if not models:
            raise ValueError("join_uneven_inputs(): there must be at least one joinable")
        for prepared in self._optimizers:
            inner = getattr(prepared.optimizer, "optimizer", prepared.optimizer)
            if isinstance(inner, Joinable):
                raise ValueError(
                    f"join_uneven_inputs(): with {type(inner).__name__} a process without data would have to "
                    "update its part of the weights, and can't see how the others clip; use even batches"
                )


class _Followers(Joinable, JoinHook):
    """What processes that made fewer steps take over in the end, beside the model."""

    def __init__(self, accelerator: Joining, models: list[DistributedDataParallel]):
        self.accelerator, self.models = accelerator, models
        self.group = models[0].join_process_group
        self.masters: list = []  # of each optimizer, where the model is a half-precision one

    join_process_group = property(lambda self: self.group)
    _optimizers = property(lambda self: [prepared.optimizer for prepared in self.accelerator._optimizers])

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return self

    def keep_masters(self) -> None:
        halves = [isinstance(optimizer, MixedPrecisionOptimizer) for optimizer in self._optimizers]
        pairs = zip(self._optimizers, halves, strict=True)
        self.masters = _copied([optimizer.masters() if is_half else None for optimizer, is_half in pairs])

    def post_hook(self, is_last_joiner: bool) -> None:
        lasts: list = [None] * process.world_size(self.group)
        dist.all_gather_object(lasts, is_last_joiner, group=self.group)
        box = [_copied(self._states()) if is_last_joiner else None]
        dist.broadcast_object_list(box, group=self.group, group_src=lasts.index(True))
        if not is_last_joiner:
            self._load(box[0])
            self._forget_grads()
        for optimizer, masters in zip(self._optimizers, box[0]["masters"], strict=True):
            if masters is not None:
                optimizer.load_masters(masters)

    def _states(self) -> dict[str, Any]:
        optimizers, scaler = self._optimizers, self.accelerator.scaler
        return {
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "masters": self.masters,
            "schedulers": [scheduler.state_dict() for scheduler in self.accelerator._schedulers],
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def _forget_grads(self) -> None:
        """Those of the others' steps, which would be added to the next ones."""
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        for model in self.models:
            model.zero_grad()

    def _load(self, states: dict[str, Any]) -> None:
        for optimizer, state in zip(self._optimizers, states["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for scheduler, state in zip(self.accelerator._schedulers, states["schedulers"], strict=True):
            scheduler.load_state_dict(state)
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(states["scaler"])
