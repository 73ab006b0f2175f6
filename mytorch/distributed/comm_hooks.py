"""Communication hooks: how DistributedDataParallel averages a bucket of gradients.

A hook is called with (state, bucket) and returns an object with `wait()`, such as a Future, which returns the
averaged gradients as one Tensor. `state` is passed through; the hooks in this file take a process group, or
None for all processes.

    def hook(state, bucket):
        work = all_reduce(bucket.buffer().div_(get_world_size()), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

import numpy as np

from ..backends.device import RawArray, device_of, on
from ..core.tensor import Tensor, from_raw
from ..nn.fused_ops.norm import scale
from .bucket import GradBucket
from .collectives import all_reduce
from .process_group import ProcessGroup
from .work import Future
from .world import as_group


def allreduce_hook(state: ProcessGroup | None, bucket: GradBucket) -> Future:
    """Averages over all ranks in the precision of the gradients: what DDP does without a hook."""
    raw = bucket.raw
    divide(raw, as_group(state).ranks_in(raw))
    return Future(all_reduce(raw, group=state, async_op=True), lambda: from_raw(raw))


def fp16_compress_hook(state: ProcessGroup | None, bucket: GradBucket) -> Future:
    """Averages over all ranks in float16: half the bytes of float32. Values above 65504 become inf."""
    return _compress(state, bucket, "float16")


def bf16_compress_hook(state: ProcessGroup | None, bucket: GradBucket) -> Future:
    """Averages over all ranks in bfloat16: half the bytes of float32, two to three significant digits.

    Raises:
        ImportError: the package ml_dtypes, which adds the dtype to NumPy, isn't installed.
    """
    return _compress(state, bucket, "bfloat16")


def _compress(state: ProcessGroup | None, bucket: GradBucket, dtype: str) -> Future:
    raw = bucket.raw
    with on(device_of(raw)), np.errstate(over="ignore"):
        compressed = from_raw(raw / raw.dtype.type(as_group(state).ranks_in(raw))).to(dtype)

    def result() -> Tensor:
        raw[...] = compressed.to(raw.dtype).data._array
        return from_raw(raw)

    return Future(all_reduce(compressed, group=state, async_op=True), result)


def divide(raw: RawArray, by: int) -> None:
    """Divides in place, before the sum, so that the sum of half-precision gradients stays finite."""
    if by > 1:
        with on(device_of(raw)), np.errstate(all="ignore"):
            scale(raw, 1 / by)
