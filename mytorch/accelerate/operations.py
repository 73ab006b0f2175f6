"""Collectives on tensors in nested dicts, lists and tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from .. import distributed as dist
from ..backends.device import on
from ..core.tensor import Tensor, from_raw
from . import world

T = TypeVar("T")


def map_tensors(function: Callable[[Tensor], Tensor], value: T, strict: bool = False) -> T:
    """Returns nested dicts, lists and tuples with `function` applied to each tensor in them.

    Args:
        strict: they may contain nothing else.

    Raises:
        TypeError: see `strict`.
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return type(value)({key: map_tensors(function, item, strict) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, item, strict) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, item, strict) for item in value)
    if strict:
        raise TypeError(f"expected tensors in dicts, lists and tuples, got {type(value).__name__}")
    return value


def are_tensors(value: object) -> bool:
    """Returns whether nested dicts, lists and tuples contain tensors, and nothing else."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(are_tensors(item) for item in value)
    return isinstance(value, Tensor)


def gather(value: T) -> T:
    """Returns the tensors of all processes, concatenated along the first dimension, on all processes.

    Shapes: (n, …) -> (world_size * n, …), () -> (world_size,)
    """
    return map_tensors(_gather, value, strict=True)


def _gather(x: Tensor) -> Tensor:
    raw = x.detach().data._array
    raw = raw.reshape(1) if raw.ndim == 0 else raw
    if world.world_size() == 1:
        return from_raw(raw)
    with on(x.device):
        raw = np.ascontiguousarray(raw, like=raw)
        out = np.empty_like(raw, shape=(world.world_size() * raw.shape[0], *raw.shape[1:]))
    dist.all_gather_into_tensor(from_raw(out), from_raw(raw))
    return from_raw(out)


def gather_uneven(value: T) -> T:
    """Returns `gather` of tensors whose first dimension may differ between processes."""
    return map_tensors(_gather_uneven, value, strict=True)


def _gather_uneven(x: Tensor) -> Tensor:
    x = x.detach()
    sizes = world.all_gather_object(x.shape[0] if x.ndim else 1)
    if len(set(sizes)) == 1:
        return _gather(x)
    raw, longest = _gather(pad_across_processes(x)).data._array, max(sizes)
    with on(x.device):
        parts = [raw[i * longest : i * longest + size] for i, size in enumerate(sizes)]
        return from_raw(np.concatenate(parts))


def reduce(value: T, reduction: str = "mean", scale: float = 1.0) -> T:
    """Returns the sum or the mean over all processes, times `scale`, in new tensors on all processes.

    Args:
        reduction: "sum", "mean" or "none".

    Raises:
        ValueError: another reduction.
    """
    if reduction not in ("sum", "mean", "none"):
        raise ValueError(f"reduce(): reduction is 'sum', 'mean' or 'none', got {reduction!r}")

    def reduced(x: Tensor) -> Tensor:
        x = x.detach().clone()
        if world.world_size() > 1 and reduction != "none":
            dist.all_reduce(x)
        factor = scale / world.world_size() if reduction == "mean" else scale
        return x if factor == 1 else x * factor

    return map_tensors(reduced, value, strict=True)


def broadcast(value: T, from_process: int = 0) -> T:
    """Copies the tensors of one process into those of all others; returns them."""

    def send(x: Tensor) -> Tensor:
        if world.world_size() > 1:
            dist.broadcast(x.detach(), src=from_process)
        return x

    return map_tensors(send, value, strict=True)


def pad_across_processes(value: T, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> T:
    """Returns tensors padded with `pad_index` to the longest of all processes, along `dim`.

    Args:
        pad_first: pad at the front. A tensor without that dimension is returned unchanged.

    Raises:
        ValueError: integers or bools can't have the value `pad_index`.
    """

    def pad(x: Tensor) -> Tensor:
        axis = dim + x.ndim if dim < 0 else dim
        if not 0 <= axis < x.ndim:
            return x
        longest = max(world.all_gather_object(x.shape[axis]))
        if longest == x.shape[axis]:
            return x
        raw = x.detach().data._array
        if raw.dtype.kind in "iub" and raw.dtype.type(pad_index) != pad_index:
            raise ValueError(f"pad_across_processes(): no {raw.dtype} is {pad_index!r}")
        with on(x.device):
            shape = list(raw.shape)
            shape[axis] = longest
            out = np.full_like(raw, pad_index, shape=shape)
            start = longest - raw.shape[axis] if pad_first else 0
            out[(*[slice(None)] * axis, slice(start, start + raw.shape[axis]))] = raw
        return from_raw(out)

    return map_tensors(pad, value, strict=True)


def gather_object(value: object) -> list:
    """Returns the objects of all processes in one list; lists are concatenated."""
    found = world.all_gather_object(value)
    if isinstance(value, (list, tuple)):
        return [item for part in found for item in part]
    return found
