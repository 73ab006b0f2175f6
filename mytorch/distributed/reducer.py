"""
Reducer: averages gradients over all ranks while backward still computes the next ones.

    backward   | grads of layer 3 | grads of layer 2 | grads of layer 1 |
    network                       | all-reduce 3     | all-reduce 2     | all-reduce 1 |

A bucket is reduced when its gradients and those of all buckets before it are complete, so that all ranks
reduce in one order, whatever the order of their backward passes is.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020,
https://arxiv.org/abs/2006.15704, section 3.2
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.device import device_of, on
from ..core.engine import current_backward_pass
from ..core.tensor import Tensor, raw_of
from ..nn.fused_ops.norm import scale
from .bucket import GradBucket, make_buckets
from .collectives import all_reduce
from .comm_hooks import allreduce_hook
from .reduce_op import ReduceOp
from .work import Future
from .world import get_world_size

if TYPE_CHECKING:
    from .process_group import ProcessGroup

_reducers: weakref.WeakSet[Reducer] = weakref.WeakSet()


class Reducer:
    """Averages the gradients of a model's parameters over all ranks as backward computes them.

    Args:
        params: those that require a gradient, in the order of the model.
        names: the parameters' names.
        group: the processes.
        first_bytes, cap_bytes: sizes of the buckets.
        finds_unused: a backward pass may leave out some parameters, and others on another rank.
        skips_unused: it leaves out the same ones on all ranks, so nothing is sent for them.

    Attributes:
        enabled: False lets gradients accumulate without being reduced.
        active: how many ranks have gradients, to be divided by; None for all of them.
        has_own_hook: whether `set_hook` was called.
    """

    def __init__(
        self, params: Sequence[Tensor], names: Sequence[str], group: ProcessGroup | None, first_bytes: float,
        cap_bytes: float, finds_unused: bool, skips_unused: bool = False,
    ):
        self.params, self.names, self.group = list(params), list(names), group
        self._sizes = (first_bytes, cap_bytes)
        self._finds_unused, self._skips_unused = finds_unused, skips_unused
        self.enabled = True
        self.active: int | None = None
        self.has_own_hook = False
        self._state: object = group
        self._hook: Callable = allreduce_hook
        self._buckets: list[GradBucket] = []
        self._bucket_of: dict[int, GradBucket] = {}
        self._works: list[Future | None] | None = None  # None between backward passes
        self._handles = [p.register_post_accumulate_grad_hook(self._on_grad) for p in self.params]
        _reducers.add(self)

    def set_hook(self, state: object, hook: Callable[[Any, GradBucket], Future]) -> None:
        """Sets the communication hook and its state."""
        self._state, self._hook, self.has_own_hook = state, hook, True

    def check_finished(self) -> None:
        """Raises if the last backward pass left buckets that wait for gradients.

        Raises:
            RuntimeError: some parameters got no gradient; the message names them.
        """
        if self._works is None:
            return
        missing = [
            name
            for bucket in self._buckets
            for p, name in zip(bucket.parameters(), bucket.names, strict=True)
            if id(p) in bucket.pending
        ]
        self._works = None
        if self._finds_unused or not missing:  # an error ended it
            raise RuntimeError("DistributedDataParallel: the last backward didn't finish")
        names = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise RuntimeError(
            f"DistributedDataParallel: the last backward computed no gradient for {names}, so none were "
            "reduced; pass find_unused_parameters=True, or let all outputs of forward take part in the loss"
        )

    # A backward pass, from its first gradient to its last.

    def _on_grad(self, p: Tensor) -> None:
        if not self.enabled:
            return
        if self._works is None:
            self._begin()
        bucket = self._bucket_of[id(p)]
        if id(p) not in bucket.pending:
            name = bucket.names[[id(q) for q in bucket.parameters()].index(id(p))]
            raise RuntimeError(
                f"DistributedDataParallel: {name} got a gradient twice in one backward, or an earlier one "
                "did not reach all parameters; call backward() once for each forward()"
            )
        bucket.pending.discard(id(p))
        self._reduce_complete()

    def _begin(self) -> None:
        if not self._buckets or not all([bucket.is_current() for bucket in self._buckets]):
            self._buckets = make_buckets(self.params, self.names, *self._sizes)
            self._bucket_of = {id(p): bucket for bucket in self._buckets for p in bucket.parameters()}
        self._works = []
        for bucket in self._buckets:
            bucket.pending = {id(p) for p in bucket.parameters()}
        if self._finds_unused and (backward := current_backward_pass()) is not None:
            for bucket in self._buckets:
                bucket.pending = {id(p) for p in bucket.parameters() if p.node in backward.nodes}
            backward.at_end.append(self._reduce_rest)

    def _reduce_rest(self) -> None:
        """Reduces the other buckets: the backward pass computes no more gradients."""
        if self._works is not None:
            for bucket in self._buckets:
                bucket.pending.clear()
            self._reduce_complete()

    def follow(self) -> None:
        """Takes part in the other ranks' reductions with gradients of zero, on a rank without data."""
        self.check_finished()
        for p in self.params:
            p.grad = None
        self._begin()
        self._reduce_rest()
        if not self._finds_unused:
            self._expose_grads()

    def _reduce_complete(self) -> None:
        """Starts the reduction of complete buckets, in order; after the last one waits for all."""
        while len(self._works) < len(self._buckets):
            bucket = self._buckets[len(self._works)]
            if bucket.pending:
                return
            for other in [*_reducers]:  # of the same parameters, whose model is wrapped twice
                if other is not self and other._works:
                    other._complete(bucket)
            bucket.fill()
            skip = self._skips_unused and all([p.grad is None for p in bucket.parameters()])
            self._works.append(None if skip else self._hook(self._state, bucket))
        self._finish()

    def _complete(self, bucket: GradBucket) -> None:
        """Ends the reductions that write gradients of another reducer's bucket."""
        ids = {id(p) for p in bucket.parameters()}
        for k, (own, work) in enumerate(zip(self._buckets, self._works, strict=False)):
            if work is not None and not ids.isdisjoint(map(id, own.parameters())):
                self._store(own, work.wait())
                self._works[k] = None

    def _finish(self) -> None:
        works, self._works = self._works, None
        for bucket, work in zip(self._buckets, works, strict=True):
            if work is not None:
                self._store(bucket, work.wait())
        if self._finds_unused and not self._skips_unused:
            self._agree_on_unused()

    def _store(self, bucket: GradBucket, averaged: Tensor) -> None:
        if not isinstance(averaged, Tensor) or averaged.data.shape != bucket.raw.shape:
            found = f"shape {averaged.data.shape}" if isinstance(averaged, Tensor) else repr(averaged)
            raise TypeError(
                "DistributedDataParallel: a communication hook must return an object with a wait() that "
                f"returns a Tensor of shape {bucket.raw.shape}, got {found}"
            )
        with on(device_of(bucket.raw)):
            if raw_of(averaged) is not bucket.raw:
                bucket.raw[...] = raw_of(averaged)
            if self.active is not None:
                scale(bucket.raw, get_world_size(self.group) / self.active)

    def _agree_on_unused(self) -> None:
        """Sets the gradients of parameters that any other rank used; those that no rank used stay None."""
        used = np.array([p.grad is not None for p in self.params], np.int32)
        all_reduce(used, op=ReduceOp.MAX, group=self.group)
        self._expose_grads(used.tolist())

    def _expose_grads(self, used: Sequence[int] | None = None) -> None:
        """Sets each missing `.grad` to what the reduction wrote; of those in `used` if it is given."""
        for i, p in enumerate(self.params):
            if p.grad is None and (used is None or used[i]):
                p.grad = p.grad_slot.view()
