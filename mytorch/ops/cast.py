"""Dtypes and devices: the ops that copy a tensor into another kind of memory."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..device import as_device, move
from ..device import device as Device
from ..tensor import Tensor
from .op import op

__all__ = ["clone", "to", "type_as"]


@op
def astype(x, dtype):
    return x.astype(dtype), lambda g: g  # the engine casts it back


@op
def clone(x, *, memory_format=None):
    """A copy with memory of its own; the gradient passes."""
    return x.copy(), lambda g: g


@op
def _move(x, where):
    return move(x, where), lambda g: g  # the engine moves it back


def to(
    x: Tensor, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, **ignored: Any
) -> Tensor:
    """`x` in another dtype, on another device: `to("cuda")`, `to(float16)`, `to(other)`, `to(device, dtype)`.

    Args:
        args: a dtype, a device or a tensor (for both of it), in any order.
        copy: copy also if nothing changes; else `x` itself is returned.

    Raises:
        TypeError: an argument that is neither a dtype nor a device nor a tensor.
    """
    unknown = ignored.keys() - {"non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"to(): unexpected arguments {sorted(unknown)}")
    dtype, device = read_target(args, dtype, device)
    out = x
    if dtype is not None and (dtype := dtypes.as_dtype(dtype)) != x.dtype:
        out = astype(out, dtype)
    if device is not None and (where := as_device(device)) is not x.device:
        out = _move(out, where)
    return clone(out) if copy and out is x else out


def read_target(args: tuple, dtype: Any = None, device: Any = None) -> tuple[Any, Any]:
    """(dtype, device) that the positional arguments of a `to` mean; None where they say nothing."""
    for a in args:
        if isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, bool):  # non_blocking and copy by position, as PyTorch has them
            continue
        elif isinstance(a, (Device, int)) or (isinstance(a, str) and a.partition(":")[0] in ("cpu", "cuda")):
            device = a
        elif a is not None:
            dtype = a
    return dtype, device


def type_as(x: Tensor, other: Tensor) -> Tensor:
    return to(x, other.dtype)


def caster(dtype: Any):
    """`x.half()`, `x.long()`, …"""

    def cast(x: Tensor) -> Tensor:
        return to(x, dtype)

    cast.__doc__ = f"`x` as {dtype}."
    return cast


def cpu(x: Tensor) -> Tensor:
    return to(x, device="cpu")


def cuda(x: Tensor, device: Any = None) -> Tensor:
    return to(x, device="cuda" if device is None else device)
