"""Helpers of the losses: reductions and checks of arguments."""

from __future__ import annotations

import functools
import warnings
from typing import TypeAlias

import numpy as np

from ...backends.device import RawArray, is_on_gpu
from ...backends.dtypes import is_floating_point, promote_types
from ...core.tensor import Tensor, raw_of
from ...ops import where

Loss: TypeAlias = Tensor | RawArray
REDUCTIONS = ("mean", "sum", "none")


def read_reduction(
    name: str,
    reduction: str,
    size_average: bool | None,
    reduce: bool | None,
    allowed: tuple[str, ...] = REDUCTIONS,
) -> str:
    """Returns `reduction`, or the one that the deprecated `size_average` and `reduce` mean."""
    if size_average is not None or reduce is not None:
        return "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in allowed:
        raise ValueError(
            f"{name}(): {reduction} is not a valid value for reduction; valid are {str(allowed)[1:-1]}"
        )
    return reduction


def reduced(loss: Loss, reduction: str, count: Loss | float | None = None) -> Loss:
    """Returns the loss of each element, their sum, or the sum divided by `count`, by default their number."""
    if reduction == "none":
        return loss
    if reduction == "mean" and count is None and isinstance(loss, Tensor):
        return loss.mean()
    total = loss.sum()
    return total if reduction == "sum" else total / (loss.size if count is None else count)


def one_dtype(*tensors: Tensor) -> list[Tensor]:
    """Returns the tensors in their promoted dtype, if that is floating-point."""
    dtype = functools.reduce(promote_types, [t.dtype for t in tensors])
    return [t.to(dtype) for t in tensors] if is_floating_point(dtype) else list(tensors)


def check_broadcast(name: str, **tensors: Tensor) -> None:
    """Raises TypeError unless they are Tensors, RuntimeError unless their shapes broadcast."""
    for key, t in tensors.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): {key} must be a Tensor, got {type(t).__name__}")
    try:
        np.broadcast_shapes(*(t.data.shape for t in tensors.values()))
    except ValueError:
        shapes = ", ".join(f"{key} {t.data.shape}" for key, t in tensors.items())
        raise RuntimeError(f"{name}(): the shapes can't be broadcast together: {shapes}") from None


def warn_if_broadcast(name: str, input: Tensor, target: Tensor, stacklevel: int = 5) -> None:
    """Warns if the shapes differ, which is rarely intended; raises unless they broadcast."""
    if input.data.shape == target.data.shape:
        return
    shapes = f"{target.data.shape} is different from the input's, {input.data.shape}"
    warnings.warn(f"{name}(): the target's shape {shapes}; the two are broadcast", stacklevel=stacklevel)
    check_broadcast(name, target=target, input=input)


def same_shape(name: str, what: str, other: Tensor, input: Tensor) -> None:
    """Raises ValueError unless `other` has the input's shape."""
    if other.data.shape != input.data.shape:
        raise ValueError(
            f"{name}(): {what} {other.data.shape} and input {input.data.shape} must have the same size"
        )


def at_least(x: Tensor, low: float) -> Tensor:
    """Returns max(x, low), with a gradient of 1 everywhere."""
    return where(x < low, x - x.detach() + low, x)


def is_visible(x: Tensor) -> bool:
    """Returns whether its values can be read without synchronizing with a GPU."""
    return not is_on_gpu(raw_of(x))
