"""Regression losses: mse, l1, smooth_l1, huber."""

from __future__ import annotations

import numpy as np

from ...backends.device import RawArray
from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor
from ...ops import sign, where
from .composite import Unsupported, composite, require_float
from .loss import check_reduction, legacy_reduction, one_dtype, reduced, same_shape, warn_if_broadcast


@legacy_reduction
@composite
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Returns (input - target)^2, reduced.

    Args:
        input, target: of one shape; others are broadcast with a warning.
        reduction: "mean", "sum" or "none".
        weight: of each element, in the input's shape; the mean is a weighted one.

    Raises:
        ValueError: an unknown reduction, or a weight of another shape.
        RuntimeError: the shapes can't be broadcast; integer dtypes.

    >>> F.mse_loss(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(2.00000)
    """
    return weighted((input - target).square(), weight, reduction)


@legacy_reduction
@composite
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Returns |input - target|, or its mean or sum; where they are equal the gradient is 0.

    Args, Raises: as `mse_loss`; integer dtypes have no mean.

    >>> F.l1_loss(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(1.00000)
    """
    return weighted((input - target).abs(), weight, reduction)


@legacy_reduction
@composite
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Returns the absolute error, quadratic near 0, reduced.

        0.5 error^2 / beta   where |error| < beta
        |error| - 0.5 beta   elsewhere

    Args, Raises: as `mse_loss`. With beta = 0 it is `l1_loss`.
    Source: Girshick, "Fast R-CNN", 2015, https://arxiv.org/abs/1504.08083

    >>> F.smooth_l1_loss(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(0.75000)
    """
    if beta == 0:
        return reduced((input - target).abs(), reduction)
    return reduced(quadratic_then_linear(input - target, beta) / beta, reduction)


@composite
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Returns the squared error where it is small, the absolute one where it is large, reduced.

        0.5 error^2                    where |error| < delta
        delta (|error| - 0.5 delta)    elsewhere

    Args, Raises: as `mse_loss`, but the mean is over all elements also with a weight. The result has the
        input's dtype.
    Source: Huber, "Robust Estimation of a Location Parameter", 1964, https://doi.org/10.1214/aoms/1177703732

    >>> F.huber_loss(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(0.75000)
    """
    loss = quadratic_then_linear(input - target, delta)
    return reduced(loss if weight is None else loss * weight, reduction)


def weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Returns the loss, its sum, or its weighted mean."""
    return reduced(loss, reduction) if weight is None else reduced(loss * weight, reduction, weight.sum())


def quadratic_then_linear(error: Tensor, width: float) -> Tensor:
    """Returns 0.5 error^2 where |error| < width, elsewhere its linear continuation.

    Each branch computes 0 where the other is selected: the square of an infinite error would make
    the gradient NaN.
    """
    size = error.abs()
    inside = size < width
    return 0.5 * where(inside, error, 0).square() + where(inside, 0, width * (size - 0.5 * width))


def _check(name: str, input: Tensor, target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    warn_if_broadcast(name, input, target)
    if weight is not None:
        same_shape(name, "weight", weight, input)
    return one_dtype(input, target)


@mse_loss.check
def _check_mse(input, target, reduction, weight):
    check_reduction("mse_loss", reduction)
    input, target = _check("mse_loss", input, target, weight)
    require_float(input.dtype, "mse_loss")
    return input, target, reduction, weight


@l1_loss.check
def _check_l1(input, target, reduction, weight):
    check_reduction("l1_loss", reduction)
    return *_check("l1_loss", input, target, weight), reduction, weight


@smooth_l1_loss.check
def _check_smooth_l1(input, target, reduction, beta):
    check_reduction("smooth_l1_loss", reduction)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss(): does not support negative values for beta, got {beta}")
    input, target = _check("smooth_l1_loss", input, target)
    require_float(input.dtype, "smooth_l1_loss")
    return input, target, reduction, beta


@huber_loss.check
def _check_huber(input, target, reduction, delta, weight):
    check_reduction("huber_loss", reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss(): does not support non-positive values for delta, got {delta}")
    require_float(input.dtype, "huber_loss")
    _check("huber_loss", input, target, weight)
    return input, target.to(input.dtype), reduction, delta, weight


def _from_error(loss: RawArray, slope: RawArray, reduction: str, factor: float = 1) -> tuple:
    """Returns the reduced loss and its vjp, from each element's loss and derivative, factor * slope."""
    factor = slope.dtype.type(factor / max(slope.size, 1) if reduction == "mean" else factor)
    return reduced(loss, reduction), (lambda g: g * (slope * factor), lambda g: g * (slope * -factor))


@mse_loss.manual
def _mse_loss(x, target, reduction, weight):
    if weight is not None:
        raise Unsupported("weight")
    error = x - target
    return _from_error(error * error, error, reduction, 2)


@l1_loss.manual
def _l1_loss(x, target, reduction, weight):
    if weight is not None or not is_floating_point(x.dtype):
        raise Unsupported("weight, or integers")
    error = x - target
    return _from_error(np.abs(error), sign.forward(error)[0], reduction)


@smooth_l1_loss.manual
def _smooth_l1_loss(x, target, reduction, beta):
    if beta == 0:
        return _l1_loss(x, target, reduction, None)
    error = x - target
    slope = np.clip(error, -beta, beta) / error.dtype.type(beta)
    return _from_error(slope * (error - 0.5 * beta * slope), slope, reduction)


@huber_loss.manual
def _huber_loss(x, target, reduction, delta, weight):
    if weight is not None:
        raise Unsupported("weight")
    error = x - target
    slope = np.clip(error, -delta, delta)
    return _from_error(slope * (error - 0.5 * slope), slope, reduction)
