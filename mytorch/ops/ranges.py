"""Numbers in sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.device import DeviceLike, array_module, device_of_new, on
from ..backends.dtypes import DTypeLike
from ..core.tensor import Tensor, from_raw
from .scalars import Number, as_number, integer, number

__all__ = ["arange", "linspace", "logspace"]


def arange(
    *bounds: Tensor | Number, start: Tensor | Number | None = None, end: Tensor | Number | None = None,
    step: Tensor | Number | None = None,
    dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:
    """start, start + step, start + 2 step, … below `end`: `arange(end)` or `arange(start, end, step=1)`.

    The dtype is int64 if all three are integers, else the default float; floats are computed in float64.

    Raises:
        RuntimeError: `step` is 0, or leads away from `end`; a bound isn't finite.

    >>> mytorch.arange(3)
    tensor([0 1 2])
    >>> mytorch.arange(1.0, 2.0, 0.25)
    tensor([1.00000 1.25000 1.50000 1.75000])
    """
    start, end, step = _range_arguments(bounds, {"start": start, "end": end, "step": step})
    values = (start, end, step)
    if dtype is None:
        dtype = dtypes.int64 if all(isinstance(v, int) for v in values) else dtypes.get_default_dtype()
    dtype = dtypes.as_dtype(dtype)
    if dtype.kind not in "iufV":
        raise NotImplementedError(f"arange(): not implemented for dtype {dtype}")
    if any(not math.isfinite(v) for v in values):
        raise RuntimeError(f"arange(): unsupported range: {start} -> {end} in steps of {step}")
    if (end - start) * step < 0:
        raise RuntimeError(f"arange(): no step of {step} leads from {start} to {end}: its sign is wrong")
    if dtype == dtypes.int64:
        start, end, step = [v if isinstance(v, int) else int(v) for v in values]  # `int` of a size loses it
    count = math.ceil((end - start) / step) if step else 0
    if dtype.kind in "iu":
        start, step = int(start), int(step)
    if step == 0:
        kind = ValueError if values[2] else RuntimeError
        raise kind(f"arange(): step must be nonzero, got {values[2]} for dtype {dtype}")
    exact = dtypes.int64 if dtype.kind in "iu" else dtypes.float64
    return _line(lambda i: start + step * i, count, dtype, device, requires_grad, exact)


def _range_arguments(bounds: tuple, given: dict) -> list:
    """start, end and step from `arange`'s positional arguments and keywords."""
    names = ("start", "end", "step")
    if given["start"] is not None:
        names = ("end", "step")
    elif len(bounds) == 1 and given["end"] is None:
        names = ("end",)
    if len(bounds) > len(names) or any(given[name] is not None for name in names[: len(bounds)]):
        raise TypeError(f"arange() takes (end), (start, end) or (start, end, step), got {bounds} and {given}")
    given.update(zip(names, bounds, strict=False))
    if given["end"] is None:
        raise TypeError(f"arange(): the end is missing, got {bounds} and {given}")
    default = {"start": 0, "step": 1}
    return [number(default[k] if v is None else v, "arange") for k, v in given.items()]


def _line(
    value: Any, count: int, dtype: np.dtype, device: DeviceLike, requires_grad: bool,
    exact: np.dtype = dtypes.float64,
) -> Tensor:
    """value(0), …, value(count - 1), computed in `exact`."""
    target = device_of_new(device)
    with on(target):
        out = from_raw(value(array_module(target).arange(count, dtype=exact)).astype(dtype))
    return out.requires_grad_() if requires_grad else out


def linspace(
    start: Tensor | Number, end: Tensor | Number, steps: int, *, dtype: DTypeLike = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from `start` to `end`, both included, evenly spaced.

    Each half is counted from its own end, in float64: start + i * delta, end - (steps - 1 - i) * delta, from
    bounds of the dtype; delta, too, is rounded to half precision if that is it.

    Raises:
        RuntimeError: `steps` is negative; a bound doesn't fit the dtype, or has dims.

    >>> mytorch.linspace(0, 1, 5)
    tensor([0.00000 0.25000 0.50000 0.75000 1.00000])
    """
    dtype, steps = _check_steps("linspace", steps, dtype)
    start, end = (as_number(_bound(x, "linspace"), dtype, "linspace") for x in (start, end))
    return _line(_between(start, end, steps, dtype), steps, dtype, device, requires_grad)


def logspace(
    start: Tensor | Number, end: Tensor | Number, steps: int, base: float = 10.0, *,
    dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:
    """`steps` powers of `base`, whose exponents are evenly spaced from `start` to `end`, both included.

    Raises:
        RuntimeError: as for `linspace`.

    >>> mytorch.logspace(0, 2, 3)
    tensor([  1.00000  10.00000 100.00000])
    """
    dtype, steps = _check_steps("logspace", steps, dtype)
    start, end = (_bound(x, "logspace") for x in (start, end))
    if dtype.kind in "iu":  # as in PyTorch
        start, end = as_number(start, dtype, "logspace"), as_number(end, dtype, "logspace")
    exponents = _between(start, end, steps, dtypes.float64)
    return _line(lambda i: float(base) ** exponents(i), steps, dtype, device, requires_grad)


def _check_steps(name: str, steps: int, dtype: DTypeLike) -> tuple[np.dtype, int]:
    steps = integer(steps, name)
    if steps < 0:
        raise RuntimeError(f"{name}(): number of steps must be non-negative, got {steps}")
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if dtype.kind not in "iufV":
        raise NotImplementedError(f"{name}(): not implemented for dtype {dtype}")
    return dtype, steps


def _bound(x: Tensor | Number, name: str) -> Number:
    if getattr(x, "ndim", 0):
        raise RuntimeError(
            f"{name}(): only supports 0-dimensional start and end tensors, got {list(x.shape)}"
        )
    return number(x, name)


def _between(start: Number, end: Number, steps: int, dtype: np.dtype) -> Callable:
    """i -> number i of `steps` from `start` to `end`."""
    start, end = (x.item() if isinstance(x, np.generic) else x for x in (start, end))
    delta = (end - start) / max(steps - 1, 1)
    delta = float(dtype.type(delta)) if dtype == dtypes.float16 else delta
    return lambda i: np.where(i < max(steps // 2, 1), start + delta * i, end - delta * (steps - 1 - i))
