"""
Cross entropy of class indices. Forward reads the logits and saves three numbers a row: its maximum, its sum
of exponentials and its weight; backward computes the gradient from these and the logits, in one array.

Computing the gradient with the loss and multiplying it by g later would be a third faster for large logits if
g is 1, but takes a second array of their size if it isn't, and is wasted without a backward pass.
"""

from __future__ import annotations

import numpy as np

from ....backends.blas import rows
from ....backends.jit import device, kernel, prange
from ...functional.composite import Unsupported
from ...functional.cross_entropy import class_back, class_last, cross_entropy
from .approximations import ONE, ZERO, exp32
from .in_order import minus
from .moments import SINGLE, contiguous, require_single
from .softmax import max_of


@device
def smoothing_of(smooth, x, largest):
    """The sums of `smooth` and of smooth (x - largest)."""
    total, smooth_x = ZERO, ZERO
    for i in range(smooth.size):
        total += smooth[i]
        smooth_x += smooth[i] * minus(x[i], largest)
    return total, smooth_x


@device
def loss_of(target_weight, z, total, smooth, smooth_x):
    """-target_weight log_p[target] - sum(smooth log_p), where log_p = x - largest - log(total) and
    z = x[target] - largest."""
    return (target_weight + smooth) * np.log(total) - target_weight * z - smooth_x


@kernel
def _forward(x, target, weight, ignore_index, smooth, losses, saved):
    """The losses; returns their sum, their mean and its divisor.

    The first element of `smooth` is 1 - smoothing; unless it is 1, smoothing / C times the weight of each
    class follow.
    """
    for i in prange(x.shape[0]):
        row, label = x[i], target[i]
        largest, total = max_of(row), ZERO
        for j in range(row.size):
            total += exp32(row[j] - largest)
        counts = label != ignore_index
        scale = (weight[label] if weight.size else ONE) if counts else ZERO
        saved[0, i], saved[1, i], saved[2, i] = largest, total, scale
        sum_smooth, smooth_x = smoothing_of(smooth[1:], row, largest) if smooth.size > 1 else (ZERO, ZERO)
        z = minus(row[label], largest) if counts else ZERO
        losses[i] = loss_of(smooth[0] * scale, z, total, sum_smooth, smooth_x) if counts else ZERO
    loss, norm = 0.0, 0.0
    for i in range(losses.size):
        loss += losses[i]
        norm += saved[2, i]
    return loss, loss / norm, norm


@kernel
def _backward(x, target, ignore_index, smooth, saved, g, norm, dx):
    """(target_weight + sum(smooth)) p - smooth, minus target_weight at the target, times g / norm; there is
    one g for all rows, or one a row."""
    for i in prange(x.shape[0]):
        row, out, label = x[i], dx[i], target[i]
        largest, total, target_weight = saved[0, i], saved[1, i], saved[2, i] * smooth[0]
        dloss = g[i] if g.size > 1 else g[0]
        factor = np.float32(dloss / norm) if label != ignore_index else ZERO
        sum_smooth, _ = smoothing_of(smooth[1:], row, largest)
        exp_factor = (target_weight + sum_smooth) * factor / total
        for j in range(row.size):
            out[j] = exp32(row[j] - largest) * exp_factor
        for j in range(smooth.size - 1):
            out[j] -= factor * smooth[1 + j]
        if label != ignore_index:
            out[label] -= factor * target_weight


@cross_entropy.fused("cpu")
def _cross_entropy(x, target, weight, ignore_index, reduction, smoothing, dtype):
    require_single(x, weight)
    if target.dtype.kind == "f":
        raise Unsupported("the kernel is for class indices, not for probabilities")
    shape, kind = x.shape, target.shape
    x = rows(class_last(x))
    x, target = contiguous(x, x.shape), contiguous(target, (len(x),))
    weight = contiguous(weight, (0,) if weight is None else weight.shape)
    smooth = np.asarray([1 - smoothing], SINGLE)
    if smoothing:
        each = np.full(x.shape[1], smoothing / max(x.shape[1], 1), SINGLE)
        smooth = np.concatenate([smooth, each * weight if weight.size else each])
    losses, saved = np.empty(len(x), SINGLE), np.empty((3, len(x)), SINGLE)
    total, mean, norm = _forward(x, target, weight, ignore_index, smooth, losses, saved)
    norm = norm if reduction == "mean" else 1.0

    def vjp(g):
        dx = np.empty_like(x)
        _backward(x, target, ignore_index, smooth, saved, contiguous(g, (g.size,)), norm, dx)
        return class_back(dx, shape)

    if reduction == "none":
        return losses.reshape(kind), vjp
    return np.asarray(mean if reduction == "mean" else total, SINGLE), vjp
