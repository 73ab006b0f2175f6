"""Linear layer and cross entropy: products on the pool; a chunk's logits become their gradient in place."""

from __future__ import annotations

import numpy as np

from ....backends.jit import kernel, prange
from ...functional.cross_entropy import RowWeights
from ...functional.linear_cross_entropy import by_chunks, linear_cross_entropy
from .approximations import ZERO, exp32
from .cross_entropy import loss_of, max_of, smoothing_of
from .in_order import minus
from .moments import SINGLE, require_single

_NONE = np.empty(0, SINGLE)


@kernel
def _losses(z, target, target_weight, smooth, factors, losses):
    """The losses of the logits z, and with factors the gradient, which overwrites the logits."""
    for i in prange(z.shape[0]):
        row, label = z[i], target[i]
        largest, total = max_of(row), ZERO
        sum_smooth, smooth_x = smoothing_of(smooth, row, largest)
        at_label = ZERO if label < 0 else minus(row[label], largest)
        for j in range(row.size):
            row[j] = exp32(row[j] - largest)
            total += row[j]
        losses[i] = ZERO if label < 0 else loss_of(target_weight[i], at_label, total, sum_smooth, smooth_x)
        if factors.size:
            exp_factor = (target_weight[i] + sum_smooth) * factors[i] / total
            for j in range(row.size):
                row[j] *= exp_factor
            for j in range(smooth.size):
                row[j] -= factors[i] * smooth[j]
            if label >= 0:
                row[label] -= factors[i] * target_weight[i]


@linear_cross_entropy.fused("cpu")
def _linear_cross_entropy(x, w, target, bias, weight, *options):
    require_single(x, w, bias, weight)
    return by_chunks(_row_losses, x, w, target, bias, weight, *options)


def _row_losses(z: np.ndarray, weights: RowWeights, factors: np.ndarray | None) -> np.ndarray:
    """See `RowLosses`."""
    losses = np.empty(len(z), SINGLE)
    smooth = _NONE if weights.smoothing is None else weights.smoothing
    _losses(z, weights.target, weights.target_weight, smooth, _NONE if factors is None else factors, losses)
    return losses
