"""Binary cross entropy of probabilities and of logits."""

from __future__ import annotations

import numpy as np

from ...core.op import op
from ...core.tensor import Tensor, raw_of
from ...ops.autocast import autocasts, in_float32
from ...ops.bounds import require_all
from .composite import require_float
from .loss import check_broadcast, check_reduction, is_visible, legacy_reduction, reduced, same_shape


@autocasts(in_float32)
@legacy_reduction
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Returns -(target log(input) + (1 - target) log(1 - input)), reduced; logarithms are clamped to -100.

    Args:
        input, target: probabilities, of one shape and dtype.
        weight: of each element, broadcast to the target's shape; the mean is over all elements.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: the shapes differ; an unknown reduction.
        RuntimeError: dtypes; an input or target outside [0, 1] (unchecked on a GPU, which would have to
            synchronize).

    >>> F.binary_cross_entropy(mytorch.tensor([0.9]), mytorch.tensor([1.0]))
    tensor(0.10536)
    """
    name = "binary_cross_entropy"
    check_reduction(name, reduction)
    same_shape(name, "target", target, input)
    for what, x in (("input", input), ("target", target)):
        if x.dtype != input.dtype:
            raise RuntimeError(f"{name}(): expected a {what} of dtype {input.dtype}, got {x.dtype}")
        require_float(x.dtype, name)
        _check_probabilities(what, x)
    loss = _bernoulli_nll(input, target)
    if weight is not None:
        check_broadcast(name, target=target, weight=weight)
        loss = loss * weight
    return reduced(loss, reduction)


def _check_probabilities(what: str, x: Tensor) -> None:
    raw = raw_of(x)
    if is_visible(x):
        valid = np.logical_and(raw >= 0, raw <= 1)
        text = f"binary_cross_entropy(): all elements of {what} should be between 0 and 1"
        require_all(valid, text, found=lambda: raw[~valid][0])


@op
def _bernoulli_nll(p, y):
    """Returns -(y log(p) + (1 - y) log(1 - p)), with log >= -100 and p (1 - p) >= 1e-12, as in PyTorch."""
    log_q, log_p = np.log1p(-p), np.log(p)
    return (y - 1) * np.maximum(log_q, -100) - y * np.maximum(log_p, -100), (
        lambda g: g * (p - y) / np.maximum((1 - p) * p, 1e-12),
        lambda g: g * (log_q - log_p),
    )


@autocasts(in_float32)
@legacy_reduction
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Returns `binary_cross_entropy` of sigmoid(input), accurate for small probabilities.

        -(pos_weight target log(sigmoid(x)) + (1 - target) log(1 - sigmoid(x)))
            = (1 - target) x + (1 + (pos_weight - 1) target) log(1 + exp(-x))

    Args:
        input, target: logits and probabilities, of one shape.
        weight: of each element, broadcast to the input's shape.
        pos_weight: of the positive targets, broadcast to the input's shape.
        reduction: "mean", "sum" or "none"; the mean is divided by the number of elements.

    Returns:
        The dtype of the target.

    Raises:
        ValueError: the shapes differ; an unknown reduction.
        RuntimeError: integer dtypes, or weights that can't be broadcast.

    >>> F.binary_cross_entropy_with_logits(mytorch.tensor([2.0]), mytorch.tensor([1.0]))
    tensor(0.12693)
    """
    name = "binary_cross_entropy_with_logits"
    check_reduction(name, reduction)
    same_shape(name, "target", target, input)
    require_float(input.dtype, name)
    require_float(target.dtype, name)
    factor = 1
    if pos_weight is not None:
        check_broadcast(name, input=input, pos_weight=pos_weight)
        factor = 1 + (pos_weight - 1) * target
    loss = _logits_nll(input, target, factor).to(target.dtype)
    if weight is not None:
        check_broadcast(name, input=input, weight=weight)
        loss = loss * weight
    return reduced(loss, reduction)


@op(promote="common")
def _logits_nll(x, y, v):
    """Returns (1 - y) x + v log(1 + exp(-x))."""
    softplus = np.logaddexp(0, -x)
    return (1 - y) * x + v * softplus, (
        lambda g: g * (1 - y - v / (1 + np.exp(x))),
        lambda g: -g * x,
        lambda g: g * softplus,
    )
