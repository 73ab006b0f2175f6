"""GradientState: the position of a training loop between two updates."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .. import distributed as dist
from . import world


class Loader(Protocol):
    """What a GradientState asks a loader that is being iterated; see `PreparedLoader`."""

    end_of_dataloader: bool
    num_yielded: int
    even_batches: bool

    @property
    def duplicates(self) -> int: ...


class GradientState:
    """Counts micro-batches and windows; at the end of a window gradients are reduced and optimizers step.

    A window is `num_steps` micro-batches, or the rest of an epoch. Losses are means over micro-batches,
    and the gradient of a window is

        sum_i n_i grad_i / sum_i n_i

    over its micro-batches i on all processes, with n_i tokens (or n_i = 1). `backward` multiplies losses by
    n_i / (num_steps * reference), which is exact if all windows are alike; else the gradients remain to be
    divided by `correction`.

    Attributes:
        sync_gradients: this micro-batch ends a window.
        loaders: the prepared loaders that are being iterated, the innermost last.
        windows: number of windows so far.
        in_context: an `accumulate()` that counts the micro-batch is open; else `backward` counts it.
        is_held: the user set `sync_gradients` to False: `backward` counts nothing.
        is_joining: some processes may have no more data, and take part in no other collective.
    """

    def __init__(self, num_steps: int):
        self.num_steps, self.step, self.windows = num_steps, 0, 0
        self.sync_gradients, self.is_joining, self.in_context = True, False, False
        self.is_held = False
        self._counted: tuple | None = None  # the batch that `backward` counted last
        self.loaders: list[Loader] = []
        self._reference: float | None = None  # the first n of process 0: a unit, which cancels out
        self._weights: list[float] = []  # n_i / reference of this window
        self._is_weighted = False
        self._correction: float | None = None

    def reset(self) -> None:
        """Forgets the position, and the loader of the batch that was counted last."""
        self.step, self.sync_gradients, self.is_held, self._counted = 0, True, False, None

    @property
    def end_of_dataloader(self) -> bool:
        """Whether this is the last batch of the loader."""
        return bool(self.loaders) and self.loaders[-1].end_of_dataloader

    @property
    def has_even_batches(self) -> bool:
        """Whether all processes have the same number of samples in this batch."""
        return not self.loaders or self.loaders[-1].even_batches

    @property
    def remainder(self) -> int:
        """Number of repeated samples at the end of this batch, over all processes."""
        return self.loaders[-1].duplicates if self.loaders else 0

    def completes_next(self) -> bool:
        """Returns whether the micro-batch of a forward pass that begins now ends a window."""
        if self.in_context or self.is_held or self._is_counted():
            return self.sync_gradients
        return (self.step + 1) % self.num_steps == 0 or self.end_of_dataloader

    def count_backward(self) -> None:
        """Counts the micro-batch of a backward pass outside of `accumulate()`: one for each batch.

        Without a prepared loader, each backward pass is a micro-batch.
        """
        if not (self.in_context or self.is_held or self._is_counted()):
            self.begin_micro_batch()
            self._counted = self._batch()

    def _batch(self) -> tuple | None:
        """Returns the current batch: its loader and its number; None without a prepared loader."""
        return (self.loaders[-1], self.loaders[-1].num_yielded) if self.loaders else None

    def _is_counted(self) -> bool:
        return self._counted is not None and self._counted == self._batch()

    def begin_micro_batch(self) -> bool:
        """Counts a micro-batch; returns whether it ends a window."""
        if self.sync_gradients:
            self._weights, self._correction, self._is_weighted = [], None, False
            self.windows += 1
        self.step += 1
        self.sync_gradients = self.step % self.num_steps == 0 or self.end_of_dataloader
        if self.sync_gradients:
            self.step = 0
        self._weights.append(1.0)
        return self.sync_gradients

    def factor(self, num_items: float | None) -> float:
        """Returns the factor of a loss.

        Args:
            num_items: number of tokens (or samples) of its mean; None counts micro-batches.
        """
        if num_items is None:
            return 1 / self.num_steps
        if not num_items > 0:
            raise ValueError(f"backward(): num_items must be positive, got {num_items}")
        if self.is_joining:
            raise RuntimeError(
                f"backward(): num_items={num_items} in join_uneven_inputs(): a process that has no more data "
                "can't say how many it has"
            )
        if self._reference is None:
            self._reference = float(world.broadcast_object(float(num_items)))
        weight = float(num_items) / self._reference
        self._is_weighted = True
        if self._weights:
            self._weights[-1] = weight
        return weight / self.num_steps

    def correction(self) -> float:
        """Returns the divisor of the gradients of a complete window; a collective."""
        if self._correction is None:
            total = sum(self._weights) / self.num_steps if self._weights else 1.0
            if self._is_weighted and world.world_size() > 1:
                box = np.array([total])
                dist.all_reduce(box)
                total = float(box[0]) / world.world_size()
            self._correction = total
        return self._correction
