"""
Reducer: averages gradients over all ranks while backward still computes the next ones.

    backward   | grads of layer 3 | grads of layer 2 | grads of layer 1 |
    network                       | all-reduce 3     | all-reduce 2     | all-reduce 1 |

A bucket is reduced when all its gradients are there and those of the buckets before it, so that all ranks
reduce in one order, whatever theirs is.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020,
https://arxiv.org/abs/2006.15704, section 3.2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends.device import device_of, on
from ..core.engine import current_backward_pass
from ..core.tensor import Tensor
from ..nn.fused_ops.norm import scale
from .bucket import GradBucket, make_buckets
from .collectives import all_reduce
from .comm_hooks import allreduce_hook
from .reduce_op import ReduceOp
from .world import get_world_size


class Reducer:
    """Watches the gradients of some parameters, and averages them.

    Args:
        params: those that require a gradient, in the order of the model.
        names: theirs.
        group: the processes.
        first_bytes, cap_bytes: sizes of the buckets.
        finds_unused: a backward pass may leave out some parameters, and others on another rank.
        skips_unused: it leaves out the same ones on all ranks, so nothing is sent for them.

    Attributes:
        enabled: False lets gradients add up without being reduced.
        active: how many ranks have gradients, to be divided by; None for all of them.
        has_own_hook: somebody has called `set_hook`.
    """

    def __init__(
        self, params: Sequence[Tensor], names: Sequence[str], group: Any, first_bytes: float,
        cap_bytes: float, finds_unused: bool, skips_unused: bool = False,
    ):  # fmt: skip
        self.params, self.names, self.group = list(params), list(names), group
        self._sizes = (first_bytes, cap_bytes)
        self._finds_unused, self._skips_unused = finds_unused, skips_unused
        self.enabled = True
        self.active: int | None = None
        self.has_own_hook = False
        self._state: Any = group
        self._hook: Callable = allreduce_hook
        self._buckets: list[GradBucket] = []
        self._bucket_of: dict[int, GradBucket] = {}
        self._works: list[Any] | None = None  # of the buckets that are under way; None between two rounds
        self._handles = [p.register_post_accumulate_grad_hook(self._on_grad) for p in self.params]

    def set_hook(self, state: Any, hook: Callable) -> None:
        self._state, self._hook, self.has_own_hook = state, hook, True

    def check_finished(self) -> None:
        """Raise if the last backward left buckets that wait for gradients.

        Raises:
            RuntimeError: some parameters got no gradient; the message names them.
        """
        if self._works is None:
            return
        missing = [
            name
            for bucket in self._buckets
            for p, name in zip(bucket.parameters(), bucket.names, strict=True)
            if id(p) in bucket.waiting
        ]
        self._works = None
        if self._finds_unused or not missing:  # an error ended it
            raise RuntimeError("DistributedDataParallel: the last backward didn't come to its end")
        names = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise RuntimeError(
            f"DistributedDataParallel: the last backward gave no gradient to {names}, so gradients were not "
            "reduced; pass find_unused_parameters=True, or let all outputs of forward take part in the loss"
        )

    # A round: from the first gradient of a backward to the last.

    def _on_grad(self, p: Tensor) -> None:
        if not self.enabled:
            return
        if self._works is None:
            self._begin()
        bucket = self._bucket_of[id(p)]
        if id(p) not in bucket.waiting:
            name = bucket.names[[id(q) for q in bucket.parameters()].index(id(p))]
            raise RuntimeError(
                f"DistributedDataParallel: {name} got a gradient twice in one backward, or an earlier one "
                "did not reach all parameters; call backward() once for each forward()"
            )
        bucket.waiting.discard(id(p))
        self._go_on()

    def _begin(self) -> None:
        if not self._buckets or not all([bucket.is_current() for bucket in self._buckets]):
            self._buckets = make_buckets(self.params, self.names, *self._sizes)
            self._bucket_of = {id(p): bucket for bucket in self._buckets for p in bucket.parameters()}
        self._works = []
        for bucket in self._buckets:
            bucket.waiting = {id(p) for p in bucket.parameters()}
        if self._finds_unused and (walk := current_backward_pass()) is not None:
            for bucket in self._buckets:
                bucket.waiting = {id(p) for p in bucket.parameters() if p._node in walk.nodes}
            walk.at_end.append(self._wait_no_more)

    def _wait_no_more(self) -> None:
        """Reduce what there is: no more gradients will come."""
        if self._works is not None:
            for bucket in self._buckets:
                bucket.waiting.clear()
            self._go_on()

    def follow(self) -> None:
        """A round with gradients of zero, as the others have one, for a rank that has no data."""
        self.check_finished()
        for p in self.params:
            p._grad = None
        self._begin()
        self._wait_no_more()
        if not self._finds_unused:
            self._take_all()

    def _go_on(self) -> None:
        """Start what is ready, in order; at the last bucket wait for all."""
        while len(self._works) < len(self._buckets):
            bucket = self._buckets[len(self._works)]
            if bucket.waiting:
                return
            bucket.fill()
            skip = self._skips_unused and all([p._grad is None for p in bucket.parameters()])
            self._works.append(None if skip else self._hook(self._state, bucket))
        self._finish()

    def _finish(self) -> None:
        works, self._works = self._works, None
        for bucket, work in zip(self._buckets, works, strict=True):
            if work is not None:
                self._store(bucket, work.wait())
        if self._finds_unused and not self._skips_unused:
            self._share_unused()

    def _store(self, bucket: GradBucket, averaged: Any) -> None:
        if not isinstance(averaged, Tensor) or averaged.data.shape != bucket.raw.shape:
            found = f"shape {averaged.data.shape}" if isinstance(averaged, Tensor) else repr(averaged)
            raise TypeError(
                "DistributedDataParallel: what a communication hook returns must have a wait() that gives a "
                f"Tensor of shape {bucket.raw.shape}, got {found}"
            )
        with on(device_of(bucket.raw)):
            if averaged.data._array is not bucket.raw:
                bucket.raw[...] = averaged.data._array
            if self.active is not None:
                scale(bucket.raw, get_world_size(self.group) / self.active)

    def _share_unused(self) -> None:
        """A parameter that another rank used has a gradient here, too; one that nobody used has none."""
        used = np.array([p._grad is not None for p in self.params], np.int32)
        all_reduce(used, op=ReduceOp.MAX, group=self.group)
        self._take_all(used.tolist())

    def _take_all(self, used: Sequence[int] | None = None) -> None:
        for i, p in enumerate(self.params):
            if p._grad is None and (used is None or used[i]):
                p._grad = p.grad_slot.take(p.grad_slot.raw)
