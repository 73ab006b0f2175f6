"""Linear map and cross entropy: products on the pool, and a chunk's logits become their gradient in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from ...functional.cross_entropy import RowWeights
from ...functional.linear_cross_entropy import by_chunks, linear_cross_entropy
from .approximations import ZERO, exp32
from .cross_entropy import largest_of, loss_of, spread_of
from .moments import SINGLE, require_single


@kernel
def _losses(z, target, pull, spread, factors, losses):
    """The losses of the logits z, and where there are factors, their gradient in the place of the logits."""
    for i in prange(z.shape[0]):
        row, label = z[i], target[i]
        largest, total = largest_of(row), ZERO
        all_spread, level = spread_of(spread, row, largest)
        at_label = ZERO if label < 0 else row[label] - largest
        for j in range(row.size):
            row[j] = exp32(row[j] - largest)
            total += row[j]
        losses[i] = ZERO if label < 0 else loss_of(pull[i], at_label, total, all_spread, level)
        if factors.size:
            push = (pull[i] + all_spread) * factors[i] / total
            for j in range(row.size):
                row[j] *= push
            for j in range(spread.size):
                row[j] -= factors[i] * spread[j]
            if label >= 0:
                row[label] -= factors[i] * pull[i]


@linear_cross_entropy.fused("cpu")
def _linear_cross_entropy(x, w, target, bias, weight, *options):
    require_single(x, w, bias, weight)
    return by_chunks(_row_losses, x, w, target, bias, weight, *options)


def _row_losses(z: np.ndarray, weights: RowWeights, factors: Any) -> np.ndarray:
    """See `RowLosses`."""
    losses = np.empty(len(z), SINGLE)
    spread = _NONE if weights.spread is None else weights.spread
    _losses(z, weights.target, weights.pull, spread, _NONE if factors is None else factors, losses)
    return losses


_NONE = np.empty(0, SINGLE)
