"""
Group norm, and so instance norm, perhaps after an addition. Forward is that of `layer_norm`: groups are rows,
with a weight for each of their channels. Backward sums up every channel first, as that of `batch_norm` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...functional.add_norm import add_group_norm
from ...functional.batch_norm import group_norm
from ..normalization import register
from .channels import gradient, row_sums
from .elementwise import single
from .launch import launch, require_dtypes
from .layer_norm import normalize_rows
from .moments import column_sums, contiguous, dtypes_of

_ROWS, _BLOCK = 32, 32


@triton.jit
def _group_sums(
    of_weight_ptr, of_bias_ptr, weight_ptr, along_ptr, level_ptr, count, channels, groups,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of d x_hat and d in groups, d = g weight, from those of g x_hat and g in their channels."""
    group = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    along = tl.zeros((ROWS, BLOCK), tl.float32)
    level = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, channels, BLOCK):
        channel = start + tl.arange(0, BLOCK)[None, :]
        inside, at = (group < count) & (channel < channels), group * channels + channel
        of_weight, of_bias = single(of_weight_ptr, at, inside), single(of_bias_ptr, at, inside)
        if weight_ptr is not None:
            weight = single(weight_ptr, (group % groups) * channels + channel, inside)
            of_weight *= weight
            of_bias *= weight
        along += of_weight
        level += of_bias
    tl.store(along_ptr + group, tl.sum(along, axis=1, keep_dims=True), mask=group < count)
    tl.store(level_ptr + group, tl.sum(level, axis=1, keep_dims=True), mask=group < count)


def _normalize(
    x: Any, residual: Any, num_groups: int, weight: Any, bias: Any, eps: float
) -> tuple[Any, Any, Callable]:
    """See `normalization.register`."""
    require_dtypes(x, residual, weight, bias)
    shape, layout = x.shape, (*x.shape[:2], math.prod(x.shape[2:]))
    count, channels = layout[0] * num_groups, layout[1] // num_groups
    x, residual, weight, bias = contiguous(x, residual, weight, bias)
    y, total, mean, rstd = normalize_rows(x, residual, weight, bias, eps, count, num_groups, layout[2])
    dtypes = dtypes_of(weight, bias)

    def backward(of_y: Any, of_total: Any) -> tuple:
        g, of_total = contiguous(of_y, of_total)
        x = total.reshape(layout)
        sums = row_sums(g, x, mean, rstd, channels, False)
        along, level = np.empty_like(mean), np.empty_like(mean)
        launch(_group_sums, (triton.cdiv(count, _ROWS),), *sums, weight, along, level, count, channels,
               num_groups, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4)  # fmt: skip
        share = 1 / max(channels * layout[2], 1)
        dx = gradient(g, of_total, x, mean, rstd, weight, along, level, share, channels, False)
        return dx.reshape(shape), None, *(column_sums(s, d) for s, d in zip(sums, dtypes, strict=True))

    return y, total, backward


register("cuda", group_norm, add_group_norm, _normalize)
