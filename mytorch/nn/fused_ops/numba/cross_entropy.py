"""
Cross entropy of class numbers. Forward reads the logits and keeps three numbers a row: its maximum, the sum
of its powers and its weight; backward makes the gradient from them and the logits, in one array of that size.

The gradient could be computed with the loss, and be multiplied with g later: that is a third faster for large
logits if g is 1, but takes a second array of their size if it isn't, and is for nothing without a backward.
"""

from __future__ import annotations

import numpy as np

from ....backends.blas import rows
from ....backends.jit import device, kernel, prange
from ...functional.composite import Unsupported
from ...functional.cross_entropy import class_back, class_last, cross_entropy
from .approximations import ONE, ZERO, exp32
from .moments import SINGLE, contiguous, require_single
from .softmax import largest_of


@device
def spread_of(spread, x, largest):
    """The sum of `spread`, and that of spread (x - largest)."""
    total, level = ZERO, ZERO
    for i in range(spread.size):
        total += spread[i]
        level += spread[i] * (x[i] - largest)
    return total, level


@device
def loss_of(pull, z, total, spread, level):
    """- pull log_p[target] - sum(spread log_p); log_p = x - largest - log(total), z = x[target] - largest."""
    return (pull + spread) * np.log(total) - pull * z - level


@kernel
def _forward(x, target, weight, ignore_index, spread, losses, kept):
    """The losses; returns their sum, their mean and what it was divided by. `spread` has 1 - smoothing, and
    then, if that isn't 1, smoothing / C times the weight of each class."""
    for i in prange(x.shape[0]):
        row, label = x[i], target[i]
        largest, total = largest_of(row), ZERO
        for j in range(row.size):
            total += exp32(row[j] - largest)
        counts = label != ignore_index
        scale = (weight[label] if weight.size else ONE) if counts else ZERO
        kept[0, i], kept[1, i], kept[2, i] = largest, total, scale
        all_spread, level = spread_of(spread[1:], row, largest) if spread.size > 1 else (ZERO, ZERO)
        losses[i] = (
            loss_of(spread[0] * scale, row[label] - largest, total, all_spread, level) if counts else ZERO
        )
    loss, norm = 0.0, 0.0
    for i in range(losses.size):
        loss += losses[i]
        norm += kept[2, i]
    return loss, loss / norm, norm


@kernel
def _backward(x, target, ignore_index, spread, kept, g, norm, d):
    """(pull + sum(spread)) p - spread, less pull at the target, times g / norm; g is one, or one a row."""
    for i in prange(x.shape[0]):
        row, out, label = x[i], d[i], target[i]
        largest, total, pull = kept[0, i], kept[1, i], kept[2, i] * spread[0]
        of_loss = g[i] if g.size > 1 else g[0]
        factor = np.float32(of_loss / norm) if label != ignore_index else ZERO
        all_spread, _ = spread_of(spread[1:], row, largest)
        push = (pull + all_spread) * factor / total
        for j in range(row.size):
            out[j] = exp32(row[j] - largest) * push
        for j in range(spread.size - 1):
            out[j] -= factor * spread[1 + j]
        if label != ignore_index:
            out[label] -= factor * pull


@cross_entropy.fused("cpu")
def _cross_entropy(x, target, weight, size_average, ignore_index, reduce, reduction, smoothing):
    require_single(x, weight)
    if target.dtype.kind == "f":
        raise Unsupported("the kernel is for class numbers, not for probabilities")
    shape, kind = x.shape, target.shape
    x = rows(class_last(x))
    x, target = contiguous(x, x.shape), contiguous(target, (len(x),))
    weight = contiguous(weight, (0,) if weight is None else weight.shape)
    spread = np.asarray([1 - smoothing], SINGLE)
    if smoothing:
        each = np.full(x.shape[1], smoothing / max(x.shape[1], 1), SINGLE)
        spread = np.concatenate([spread, each * weight if weight.size else each])
    losses, kept = np.empty(len(x), SINGLE), np.empty((3, len(x)), SINGLE)
    total, mean, norm = _forward(x, target, weight, ignore_index, spread, losses, kept)
    norm = norm if reduction == "mean" else 1.0

    def grad(g):
        d = np.empty_like(x)
        _backward(x, target, ignore_index, spread, kept, contiguous(g, (g.size,)), norm, d)
        return class_back(d, shape)

    if reduction == "none":
        return losses.reshape(kind), grad
    return np.asarray(mean if reduction == "mean" else total, SINGLE), grad
