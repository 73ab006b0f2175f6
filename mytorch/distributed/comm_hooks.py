"""Communication hooks: how DistributedDataParallel averages a bucket of gradients.

A hook is called with (state, bucket) and returns something with `wait()`, a Future for one, which gives the
averaged gradients as one Tensor. `state` is the hook's own; for those here a process group, or None for all
processes.

    def hook(state, bucket):
        work = all_reduce(bucket.buffer().div_(get_world_size()), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.device import device_of, on
from ..core.tensor import Tensor, from_raw
from ..nn.fused_ops.norm import scale
from .bucket import GradBucket
from .collectives import all_reduce
from .work import Future
from .world import get_world_size


def allreduce_hook(state: Any, bucket: GradBucket) -> Future:
    """The mean over all ranks, in the gradients' own precision: what DDP does without a hook."""
    raw = bucket.raw
    divide(raw, get_world_size(state))
    return Future(all_reduce(raw, group=state, async_op=True), lambda: from_raw(raw))


def fp16_compress_hook(state: Any, bucket: GradBucket) -> Future:
    """The mean over all ranks, sent as float16: half the bytes. Values above 65504 become inf."""
    return _compress(state, bucket, "float16")


def bf16_compress_hook(state: Any, bucket: GradBucket) -> Future:
    """The mean over all ranks, sent as bfloat16: half the bytes, and two to three digits.

    Raises:
        ImportError: the package ml_dtypes, which adds the dtype to NumPy, isn't there.
    """
    return _compress(state, bucket, "bfloat16")


def _compress(state: Any, bucket: GradBucket, dtype: str) -> Future:
    raw = bucket.raw
    with on(device_of(raw)), np.errstate(over="ignore"):
        small = from_raw(raw / raw.dtype.type(get_world_size(state))).to(dtype)

    def result() -> Tensor:
        raw[...] = small.to(raw.dtype).data._array
        return from_raw(raw)

    return Future(all_reduce(small, group=state, async_op=True), result)


def divide(raw: Any, by: int) -> None:
    """raw /= by, before the sum, so that the sum of half-precision gradients stays finite."""
    if by > 1:
        with on(device_of(raw)), np.errstate(all="ignore"):
            scale(raw, 1 / by)
