"""Linear layer and cross entropy: products by cuBLAS; a chunk's logits are overwritten by their gradient."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.cross_entropy import RowWeights
from ...functional.linear_cross_entropy import by_chunks, linear_cross_entropy
from .cross_entropy import row_configs, row_smoothing, row_totals
from .launch import launch, require_dtypes
from .tune import tuned


@tuned(row_configs, key=("n",), inplace=("z_ptr",))
@triton.jit
def _losses(
    z_ptr, target_ptr, target_weight_ptr, smooth_ptr, factors_ptr, losses_ptr, n, BLOCK: tl.constexpr
):
    """The loss of a row of the logits z, and with factors the gradient, which overwrites the logits."""
    # Shapes: z (rows, n); target, target_weight, factors, losses (rows,); smooth (n,)
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(target_ptr + row)
    row_ptr = z_ptr + row * n
    at_label = tl.load(row_ptr + label, mask=(label >= 0) & (label < n), other=float("nan")).to(tl.float32)
    target_weight = tl.load(target_weight_ptr + row)
    largest, total = row_totals(row_ptr, n, BLOCK)
    smooth, smooth_x = 0.0, 0.0
    if smooth_ptr is not None:
        smooth, smooth_x = row_smoothing(row_ptr, smooth_ptr, largest, n, BLOCK)
    loss = (target_weight + smooth) * tl.log(total) - target_weight * (at_label - largest) - smooth_x
    tl.store(losses_ptr + row, tl.where(label >= 0, loss, 0.0))
    if factors_ptr is not None:
        factor = tl.load(factors_ptr + row)
        exp_factor = (target_weight + smooth) * factor / total
        for start in range(0, n, BLOCK):
            column = start + tl.arange(0, BLOCK)
            z = tl.load(row_ptr + column, mask=column < n).to(tl.float32)
            d = tl.exp(z - largest) * exp_factor
            if smooth_ptr is not None:
                d -= factor * tl.load(smooth_ptr + column, mask=column < n)
            d -= tl.where(column == label, factor * target_weight, 0.0)
            tl.store(row_ptr + column, d.to(z_ptr.dtype.element_ty), mask=column < n)


@linear_cross_entropy.fused("cuda")
def _linear_cross_entropy(x, w, target, bias, weight, *options):
    require_dtypes(x, w, bias, weight)
    return by_chunks(_row_losses, x, w, target, bias, weight, *options)


def _row_losses(z: RawArray, weights: RowWeights, factors: RawArray | None) -> RawArray:
    """See `RowLosses`."""
    losses = np.empty_like(weights.target_weight)
    target, _, target_weight, smoothing, _ = weights
    launch(_losses, (len(z),), z, target, target_weight, smoothing, factors, losses, z.shape[1])
    return losses
