"""GradientState: where a training loop is between two updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import distributed as dist
from . import process


class GradientState:
    """Counts micro-batches into windows, at whose ends gradients are reduced and optimizers step.

    A window is `num_steps` micro-batches, or what is left of an epoch. Losses are means over micro-batches,
    and the gradient of a window is

        sum_i n_i grad_i / sum_i n_i

    over its micro-batches i on all processes, with n_i tokens (or n_i = 1). `backward` multiplies losses by
    n_i / (num_steps * reference), which is right already if all windows are alike; `correction` is what
    remains to be divided by.

    Attributes:
        sync_gradients: this micro-batch ends a window.
        loaders: the prepared loaders that are being gone over, the innermost last.
        windows: how many there were.
        is_joining: some processes may have no more data, and can't be asked for anything.
    """

    def __init__(self, num_steps: int):
        self.num_steps, self.step, self.windows = num_steps, 0, 0
        self.sync_gradients, self.is_joining = True, False
        self.loaders: list[Any] = []
        self._reference: float | None = (
            None  # the first n, of process 0: only the size of numbers depends on it
        )
        self._weights: list[float] = []  # n_i / reference of this window
        self._is_weighted = False
        self._correction: float | None = None

    @property
    def end_of_dataloader(self) -> bool:
        """Is this the last batch of the loader?"""
        return bool(self.loaders) and self.loaders[-1].end_of_dataloader

    @property
    def has_even_batches(self) -> bool:
        """Have all processes as many samples in this batch?"""
        return not self.loaders or self.loaders[-1].even_batches

    @property
    def remainder(self) -> int:
        """How many samples at the end of this batch, over all processes, are repeated ones."""
        return self.loaders[-1].duplicates if self.loaders else 0

    def begin_micro_batch(self) -> bool:
        """Count one; does it end a window?"""
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
        """What a loss is multiplied by.

        Args:
            num_items: the tokens (or samples) that it is the mean over; None counts micro-batches.
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
            self._reference = float(process.broadcast_object(float(num_items)))
        weight = float(num_items) / self._reference
        self._is_weighted = True
        if self._weights:
            self._weights[-1] = weight
        return weight / self.num_steps

    def correction(self) -> float:
        """What the gradients of a complete window must still be divided by; all processes call this."""
        if self._correction is None:
            total = sum(self._weights) / self.num_steps if self._weights else 1.0
            if self._is_weighted and process.world_size() > 1:
                box = np.array([total])
                dist.all_reduce(box)
                total = float(box[0]) / process.world_size()
            self._correction = total
        return self._correction
