"""Linear map and cross entropy: products by cuBLAS, and a chunk's logits become their gradient in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...functional.cross_entropy import RowWeights
from ...functional.linear_cross_entropy import by_chunks, linear_cross_entropy
from .cross_entropy import row_configs, row_spread, row_totals
from .launch import launch, require_dtypes
from .tune import tuned


@tuned(row_configs, key=("n",), inplace=("z_ptr",))
@triton.jit
def _losses(z_ptr, target_ptr, pull_ptr, spread_ptr, factors_ptr, losses_ptr, n, BLOCK: tl.constexpr):
    """The loss of a row of the logits z, and where there are factors, the gradient in the logits' place."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(target_ptr + row)
    row_ptr = z_ptr + row * n
    at_label = tl.load(row_ptr + label, mask=(label >= 0) & (label < n), other=float("nan")).to(tl.float32)
    pull = tl.load(pull_ptr + row)
    largest, total = row_totals(row_ptr, n, BLOCK)
    spread, level = 0.0, 0.0
    if spread_ptr is not None:
        spread, level = row_spread(row_ptr, spread_ptr, largest, n, BLOCK)
    loss = (pull + spread) * tl.log(total) - pull * (at_label - largest) - level
    tl.store(losses_ptr + row, tl.where(label >= 0, loss, 0.0))
    if factors_ptr is not None:
        factor = tl.load(factors_ptr + row)
        push = (pull + spread) * factor / total
        for start in range(0, n, BLOCK):
            column = start + tl.arange(0, BLOCK)
            z = tl.load(row_ptr + column, mask=column < n).to(tl.float32)
            d = tl.exp(z - largest) * push
            if spread_ptr is not None:
                d -= factor * tl.load(spread_ptr + column, mask=column < n)
            d -= tl.where(column == label, factor * pull, 0.0)
            tl.store(row_ptr + column, d.to(z_ptr.dtype.element_ty), mask=column < n)


@linear_cross_entropy.fused("cuda")
def _linear_cross_entropy(x, w, target, bias, weight, *options):
    require_dtypes(x, w, bias, weight)
    return by_chunks(_row_losses, x, w, target, bias, weight, *options)


def _row_losses(z: Any, weights: RowWeights, factors: Any) -> Any:
    """See `RowLosses`."""
    losses = np.empty_like(weights.pull)
    launch(_losses, (len(z),), z, weights.target, weights.pull, weights.spread, factors, losses, z.shape[1])
    return losses
