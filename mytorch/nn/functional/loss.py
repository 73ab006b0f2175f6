"""Losses: how far an input is from its target."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...dtypes import promote_types
from ...tensor import Tensor
from .activations import require_float
from .composite import Unsupported, composite


def read_reduction(name: str, reduction: str, size_average: Any, reduce: Any) -> str:
    """`reduction`, or what PyTorch used to call so: `size_average` and `reduce`."""
    if size_average is not None or reduce is not None:
        return "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(
            f"{name}(): {reduction} is not a valid value for reduction; there are 'mean', 'sum', 'none'"
        )
    return reduction


def reduced(loss: Any, reduction: str, count: Any = None) -> Any:
    """The loss of each element as it is, or their sum, or that divided by `count` (how many they are)."""
    if reduction == "none":
        return loss
    total = loss.sum()
    return total if reduction == "sum" else total / (loss.size if count is None else count)


@composite
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)^2, or its mean or sum.

    Args:
        input, target: of one shape; else they are broadcast, with a warning.
        reduction: "mean", "sum" or "none".
        weight: for each element, in the input's shape; the mean is then divided by their sum.

    Raises:
        ValueError: another reduction, or a weight of another shape.
        RuntimeError: the shapes can't be broadcast.
    """
    loss = (input - target).square()
    if weight is None:
        return reduced(loss, reduction, loss.numel())
    return reduced(loss * weight, reduction, weight.sum())


@mse_loss.check
def _check_mse(input, target, size_average, reduce, reduction, weight):
    reduction = read_reduction("mse_loss", reduction, size_average, reduce)
    if input.data.shape != target.data.shape:
        shapes = f"{tuple(target.shape)} is different from the input's, {tuple(input.shape)}"
        warnings.warn(f"mse_loss(): the target's shape {shapes}; the two are broadcast", stacklevel=4)
        try:
            np.broadcast_shapes(input.shape, target.shape)
        except ValueError:
            raise RuntimeError(
                f"mse_loss(): the target's shape {shapes}, and they can't be broadcast"
            ) from None
    if weight is not None and weight.data.shape != input.data.shape:
        raise ValueError(
            f"mse_loss(): weight {tuple(weight.shape)} and input {tuple(input.shape)} must have the same size"
        )
    dtype = promote_types(input.dtype, target.dtype)
    input, target = input.to(dtype), target.to(dtype)
    require_float(input, "mse_loss")
    return input, target, None, None, reduction, weight


@mse_loss.manual
def _mse_loss(x, target, size_average, reduce, reduction, weight):
    if weight is not None:
        raise Unsupported("weight")
    error = x - target
    factor = error.dtype.type(2 / max(error.size, 1) if reduction == "mean" else 2)
    return reduced(error * error, reduction), (
        lambda g: g * (error * factor),
        lambda g: g * (error * -factor),
    )
