"""Communication hooks: how DistributedDataParallel averages a bucket of gradients.

A hook is called with (state, bucket) and returns something with `wait()`, which gives the averaged gradients
as one Tensor. `state` is the hook's own; for those here a process group, or None for all processes.

Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..device import device_of, on
from ..nn.fused_ops.norm import scale
from ..tensor import Tensor, from_raw
from .bucket import GradBucket
from .collectives import all_reduce
from .world import get_world_size


class Averaging:
    """Gradients on their way; `wait()` ends it and gives them."""

    def __init__(self, work: Any, result: Callable[[], Tensor]):
        self._work, self._result = work, result

    def wait(self) -> Tensor:
        self._work.wait()
        return self._result()


def allreduce_hook(state: Any, bucket: GradBucket) -> Averaging:
    """The mean over all ranks, in the gradients' own precision: what DDP does without a hook."""
    raw = bucket.raw
    divide(raw, get_world_size(state))
    return Averaging(all_reduce(raw, group=state, async_op=True), lambda: from_raw(raw))


def fp16_compress_hook(state: Any, bucket: GradBucket) -> Averaging:
    """The mean over all ranks, sent as float16: half the bytes. Values above 65504 become inf."""
    raw = bucket.raw
    with on(device_of(raw)), np.errstate(over="ignore"):
        small = (raw / raw.dtype.type(get_world_size(state))).astype(np.float16)

    def result() -> Tensor:
        raw[...] = small
        return from_raw(raw)

    return Averaging(all_reduce(small, group=state, async_op=True), result)


def divide(raw: Any, by: int) -> None:
    """raw /= by, before the sum, so that the sum of half-precision gradients stays finite."""
    if by > 1:
        with on(device_of(raw)), np.errstate(all="ignore"):
            scale(raw, 1 / by)
