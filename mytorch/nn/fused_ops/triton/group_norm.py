"""
Group norm, and so instance norm. Forward is that of `layer_norm`: groups are rows, with a weight for each of
their channels. Backward first sums over every channel, as that of `batch_norm` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.group_norm import group_norm
from .channels import input_gradient, row_sums
from .elementwise import load32
from .launch import launch, require_dtypes
from .layer_norm import normalize_rows
from .moments import column_sums, contiguous, dtypes_of
from .sizes import cdiv

_ROWS, _BLOCK = 32, 32


@triton.jit
def _group_sums(
    dweight_ptr, dbias_ptr, weight_ptr, sum_dxhat_ptr, sum_d_ptr, count, channels, groups,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The sums of d x_hat and d in groups, d = dy weight, from those of dy x_hat and dy in their channels."""
    # Shapes: dweight, dbias (count, channels); weight (groups, channels); sum_dxhat, sum_d (count,)
    group = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    sum_dxhat = tl.zeros((ROWS, BLOCK), tl.float32)
    sum_d = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, channels, BLOCK):
        channel = start + tl.arange(0, BLOCK)[None, :]
        inside, at = (group < count) & (channel < channels), group * channels + channel
        dweight, dbias = load32(dweight_ptr, at, inside), load32(dbias_ptr, at, inside)
        if weight_ptr is not None:
            weight = load32(weight_ptr, (group % groups) * channels + channel, inside)
            dweight *= weight
            dbias *= weight
        sum_dxhat += dweight
        sum_d += dbias
    tl.store(sum_dxhat_ptr + group, tl.sum(sum_dxhat, axis=1, keep_dims=True), mask=group < count)
    tl.store(sum_d_ptr + group, tl.sum(sum_d, axis=1, keep_dims=True), mask=group < count)


@group_norm.fused("cuda")
def _group_norm(
    x: RawArray, num_groups: int, weight: RawArray | None, bias: RawArray | None, eps: float
) -> tuple[RawArray, Callable]:
    require_dtypes(x, weight, bias)
    shape, layout = x.shape, (*x.shape[:2], math.prod(x.shape[2:]))
    count, channels = layout[0] * num_groups, layout[1] // num_groups
    x, weight, bias = contiguous(x, weight, bias)
    y, _, mean, rstd = normalize_rows(x, None, weight, bias, eps, count, num_groups, layout[2])
    x = x.reshape(layout)
    dtypes = dtypes_of(weight, bias)

    def vjp(dy: RawArray) -> tuple:
        (dy,) = contiguous(dy)
        sums = row_sums(dy, x, mean, rstd, channels, False)
        sum_dxhat, sum_d = np.empty_like(mean), np.empty_like(mean)
        launch(_group_sums, (cdiv(count, _ROWS),), *sums, weight, sum_dxhat, sum_d, count, channels,
               num_groups, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4)
        inv_n = 1 / max(channels * layout[2], 1)
        dx = input_gradient(dy, x, mean, rstd, weight, sum_dxhat, sum_d, inv_n, channels, False)
        return dx.reshape(shape), None, *(column_sums(s, d) for s, d in zip(sums, dtypes, strict=True))

    return y, vjp
