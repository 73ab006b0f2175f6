"""Embedding losses: cosine, hinge and triplet margin."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from ...ops import minimum, where, zeros_like
from ...ops.autocast import autocasts, in_float32
from .distance import pairwise_distance
from .loss import check_broadcast, check_reduction, legacy_reduction, reduced


@autocasts(in_float32)
@legacy_reduction
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, reduction: str = "mean"
) -> Tensor:
    """Returns 1 - cos where the target is 1, max(0, cos - margin) where it is -1, reduced.

    Args:
        input1, input2: (N, D) or (D,).
        target: 1 or -1, (N,) or ().
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: shapes do not match.

    >>> F.cosine_embedding_loss(mytorch.ones(1, 2), mytorch.ones(1, 2), mytorch.tensor([-1]))
    tensor(1.00000)
    """
    name = "cosine_embedding_loss"
    check_reduction(name, reduction)
    if target.ndim > 1:
        raise RuntimeError(f"{name}(): 0D or 1D target tensor expected, got shape {target.data.shape}")
    dims = target.ndim + 1
    if input1.ndim != dims or input2.ndim != dims:
        raise RuntimeError(
            f"{name}(): {target.ndim}D target tensor expects {dims}D input tensors, but found inputs with "
            f"sizes {input1.data.shape} and {input2.data.shape}"
        )
    check_broadcast(name, input1=input1, input2=input2)
    dot = (input1 * input2).sum(-1)
    square1, square2 = ((x * x).sum(-1) + 1e-12 for x in (input1, input2))
    cos = dot / (square1 * square2).sqrt()
    similar, dissimilar = 1 - cos, (cos - margin).clamp(min=0)
    return reduced(where(target == 1, similar, 0) + where(target == -1, dissimilar, 0), reduction)


@autocasts(in_float32)
@legacy_reduction
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Returns the input where the target is 1, max(0, margin - input) where it is -1, reduced.

    Args:
        input: distances.
        target: 1 or -1, in the input's shape.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: shapes that cannot be broadcast.

    >>> F.hinge_embedding_loss(mytorch.tensor([0.5]), mytorch.tensor([-1]))
    tensor(0.50000)
    """
    check_reduction("hinge_embedding_loss", reduction)
    check_broadcast("hinge_embedding_loss", input=input, target=target)
    near, far = input, (input.new_full((), margin) - input).clamp(min=0)
    zero = zeros_like(input)
    return reduced(where(target != 1, far, zero) + where(target != -1, near, zero), reduction)


@autocasts(in_float32)
@legacy_reduction
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """Returns max(0, d(anchor, positive) - d(anchor, negative) + margin), reduced; d is `pairwise_distance`.

    Args:
        anchor, positive, negative: (N, D) or (D,).
        p, eps: of the distance.
        swap: use d(positive, negative) where it is smaller than d(anchor, negative).
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: a margin that is not positive; an unknown reduction.
        RuntimeError: numbers of dims that differ.
    Source: Balntas et al., "Learning local feature descriptors with triplets and shallow convolutional neural
        networks", 2016, https://doi.org/10.5244/C.30.119

    >>> F.triplet_margin_loss(mytorch.zeros(1, 2), mytorch.zeros(1, 2), mytorch.ones(1, 2) * 0.3)
    tensor(0.57574)
    """
    check_reduction("triplet_margin_loss", reduction)
    _check_triplet("triplet_margin_loss", anchor, positive, negative, margin)
    return _triplet(
        anchor, positive, negative, lambda x, y: pairwise_distance(x, y, p, eps), margin, swap, reduction
    )


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced((margin + near - far).clamp(min=0), reduction)


def _check_triplet(name, anchor, positive, negative, margin):
    if margin <= 0:
        raise ValueError(f"{name}(): margin must be greater than 0, got {margin}")
    dims = anchor.ndim, positive.ndim, negative.ndim
    if len(set(dims)) > 1:
        raise RuntimeError(
            f"{name}(): the anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got {dims[0]}D, {dims[1]}D and {dims[2]}D"
        )


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """Returns `triplet_margin_loss` with a custom distance, `distance_function(x, y)`.

    Raises:
        ValueError: a margin that is not positive; an unknown reduction.
        RuntimeError: numbers of dims that differ.
    """
    name = "triplet_margin_with_distance_loss"
    check_reduction(name, reduction)
    _check_triplet(name, anchor, positive, negative, margin)
    distance = distance_function or pairwise_distance
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)
