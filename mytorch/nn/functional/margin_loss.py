"""Margin losses of scores: ranking, soft margin, multi-class and multi-label."""

from __future__ import annotations

import numpy as np

from ...core.tensor import Tensor
from ...ops import arange, logaddexp, relu, where
from ...ops.autocast import autocasts, in_float32
from ...ops.bounds import check_range
from .composite import require_float
from .loss import check_broadcast, check_reduction, legacy_reduction, reduced


@autocasts(in_float32)
@legacy_reduction
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, reduction: str = "mean"
) -> Tensor:
    """Returns max(0, -target (input1 - input2) + margin), reduced.

    Args:
        input1, input2: scores.
        target: 1 if input1 should be ranked higher, -1 if input2 should.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: numbers of dims that differ.

    >>> F.margin_ranking_loss(mytorch.tensor([1.0]), mytorch.tensor([3.0]), mytorch.tensor([1]))
    tensor(2.00000)
    """
    name = "margin_ranking_loss"
    check_reduction(name, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            f"{name}(): all input tensors should have the same number of dims, but got sizes: input1 "
            f"{input1.data.shape}, input2 {input2.data.shape}, target {target.data.shape}"
        )
    check_broadcast(name, input1=input1, input2=input2, target=target)
    return reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


@autocasts(in_float32)
@legacy_reduction
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Returns log(1 + exp(-target input)), reduced.

    Args:
        target: 1 or -1.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: shapes that cannot be broadcast; integer dtypes.

    >>> F.soft_margin_loss(mytorch.tensor([0.0]), mytorch.tensor([1.0]))
    tensor(0.69315)
    """
    check_reduction("soft_margin_loss", reduction)
    require_float(input.dtype, "soft_margin_loss")
    check_broadcast("soft_margin_loss", input=input, target=target)
    return reduced(logaddexp(-target.to(input.dtype) * input, input.new_zeros(())), reduction)


@legacy_reduction
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Returns the mean over the classes of the binary cross entropy of logits, reduced over the samples.

    Args:
        input: logits, (..., C).
        target: 0 or 1 for each.
        weight: of each class, (C,).
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: shapes that cannot be broadcast; integer dtypes.

    >>> F.multilabel_soft_margin_loss(mytorch.zeros(1, 2), mytorch.ones(1, 2))
    tensor(0.69315)
    """
    name = "multilabel_soft_margin_loss"
    check_reduction(name, reduction)
    require_float(input.dtype, name)
    check_broadcast(name, input=input, target=target, **({} if weight is None else {"weight": weight}))
    if not input.ndim:
        raise IndexError(f"{name}(): expected an input with a dim of classes, got shape ()")
    zero = input.new_zeros(())
    loss = target * logaddexp(-input, zero) + (1 - target) * logaddexp(input, zero)
    loss = loss if weight is None else loss * weight
    return reduced(loss.sum(-1) / input.shape[-1], reduction)


@autocasts(in_float32)
@legacy_reduction
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns by how much other scores violate the margin to the target's, reduced over the samples.

        sum over j != target of weight[target] max(0, margin - x[target] + x[j])^p / C

    Args:
        input: scores x, (N, C) or (C,).
        target: class indices, (N,) or ().
        p: 1 or 2.
        weight: of each class, (C,).
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown p or reduction.
        RuntimeError: shapes; a target out of range (on a GPU: after the next wait).

    >>> F.multi_margin_loss(mytorch.tensor([[1.0, 0.5]]), mytorch.tensor([0]))
    tensor(0.25000)
    """
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    if p not in (1, 2):
        raise ValueError(f"{name}(): only p == 1 and p == 2 are supported, got {p}")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"{name}(): weight must be one-dimensional, got shape {weight.data.shape}")
    input = _scores(name, input)
    classes = input.shape[-1]
    target = _labels(name, target, input.data.shape[:-1], 0, classes)
    if weight is not None and weight.data.shape != (classes,):
        raise RuntimeError(f"{name}(): inconsistent weight size, {weight.data.shape} for {classes} classes")
    index = target.unsqueeze(-1)
    gap = relu(margin - input.gather(-1, index) + input)
    gap = gap if p == 1 else gap * gap
    others = arange(classes, device=input.device) != index
    loss = where(others, gap, 0).sum(-1) / classes
    return reduced(loss if weight is None else loss * weight[target], reduction)


@autocasts(in_float32)
@legacy_reduction
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Returns by how much other scores violate a margin of 1 to the targets', reduced over the samples.

        sum over targets t and other classes i of max(0, 1 - (x[t] - x[i])) / C

    Args:
        input: scores x, (N, C) or (C,).
        target: class indices in the input's shape; the first -1 of a sample ends its list.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: shapes; a target out of range (on a GPU: after the next wait).

    >>> F.multilabel_margin_loss(mytorch.tensor([[0.1, 0.9]]), mytorch.tensor([[1, -1]]))
    tensor(0.10000)
    """
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    input = _scores(name, input)
    classes = input.shape[-1]
    target = _labels(name, target, input.data.shape, -1, classes)
    listed = (target < 0).cumsum(-1) == 0
    target = where(listed, target, 0)
    at = (target.unsqueeze(-1) == arange(classes, device=input.device)) & listed.unsqueeze(-1)
    pairs = listed.unsqueeze(-1) & ~at.any(-2, keepdim=True)
    gap = relu(1 - input.gather(-1, target).unsqueeze(-1) + input.unsqueeze(-2))
    return reduced(where(pairs, gap, 0).sum((-2, -1)) / classes, reduction)


def _scores(name: str, input: Tensor) -> Tensor:
    """Returns the input, checked; a 0-d one is reshaped to one class."""
    shape = input.data.shape
    if len(shape) > 2 or 0 in shape[-1:]:
        raise RuntimeError(f"{name}(): expected a non-empty vector or matrix, got shape {shape}")
    require_float(input.dtype, name)
    return input if shape else input.reshape(1)


def _labels(name: str, target: Tensor, shape: tuple[int, ...], low: int, classes: int) -> Tensor:
    """Returns the target, checked, in this shape; a single one may have one dim more or less."""
    if target.dtype != np.int64:
        raise RuntimeError(f"{name}(): expected a target of dtype int64, got {target.dtype}")
    single = {(), (1,)}
    if target.data.shape != shape and not {target.data.shape, shape} <= single:
        raise RuntimeError(f"{name}(): inconsistent target size, {target.data.shape}, expected {shape}")
    text = f"{name}(): target {{bad}} is out of range, there are {classes} classes"
    check_range(target, low, classes, text)
    return target.reshape(shape)
