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

from ..device import device_of, on
from ..tensor import Tensor
from .bucket import GradBucket, make_buckets
from .collectives import all_reduce
from .comm_hooks import allreduce_hook
from .reduce_op import ReduceOp


class Reducer:
    """Watches the gradients of some parameters, and averages them.

    Args:
        params: those that require a gradient, in the order of the model.
        names: theirs.
        group: the processes.
        first_bytes, cap_bytes: sizes of the buckets.
        finds_unused: some parameters may get no gradient: `expect` says which ones.

    Attributes:
        enabled: False lets gradients add up without being reduced.
    """

    def __init__(
        self, params: Sequence[Tensor], names: Sequence[str], group: Any, first_bytes: int, cap_bytes: int,
        finds_unused: bool,
    ):  # fmt: skip
        self.params, self.names, self.group = list(params), list(names), group
        self._sizes, self._finds_unused = (first_bytes, cap_bytes), finds_unused
        self.enabled = True
        self._state: Any = group
        self._hook: Callable = allreduce_hook
        self._buckets: list[GradBucket] = []
        self._bucket_of: dict[int, GradBucket] = {}
        self._unused: list[Tensor] = []
        self._works: list[Any] | None = None  # of the buckets that are under way; None between two rounds
        self._handles = [p.register_post_accumulate_grad_hook(self._on_grad) for p in self.params]

    def set_hook(self, state: Any, hook: Callable) -> None:
        self._state, self._hook = state, hook

    def expect(self, unused: Sequence[Tensor] = ()) -> None:
        """A forward pass was done: backward passes through it will give no gradient to these parameters."""
        self._unused = list(unused)

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
        unused = {id(p) for p in self._unused}
        for bucket in self._buckets:
            bucket.waiting = {id(p) for p in bucket.parameters()} - unused

    def _go_on(self) -> None:
        """Start what is ready, in order; at the last bucket wait for all."""
        while len(self._works) < len(self._buckets):
            bucket = self._buckets[len(self._works)]
            if bucket.waiting:
                return
            bucket.fill()
            self._works.append(self._hook(self._state, bucket))
        self._finish()

    def _finish(self) -> None:
        works, self._works = self._works, None
        for bucket, work in zip(self._buckets, works, strict=True):
            averaged = work.wait().data._array
            if averaged is not bucket.raw:
                with on(device_of(bucket.raw)):
                    bucket.raw[...] = averaged
        if self._finds_unused:
            self._share_unused()

    def _share_unused(self) -> None:
        """A parameter that another rank used has a gradient here, too; one that nobody used has none."""
        unused = {id(p) for p in self._unused if p._grad is None}
        used = np.array([id(p) not in unused for p in self.params], np.int32)
        all_reduce(used, op=ReduceOp.MAX, group=self.group)
        for p, somewhere in zip(self.params, used.tolist(), strict=True):
            if p._grad is None and somewhere:
                p._grad = p._slot.take(p._slot.raw)
