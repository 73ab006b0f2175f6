"""dropout. Backward draws again what forward drew, from the seed: nothing is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...functional.dropout import Draw, dropout, scale_of_kept
from .elementwise import elements, single, starter, store
from .launch import require_dtypes


@triton.jit(do_not_specialize=["seed"])
def _dropout(x_ptr, seed, p, scale, y_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    factor = tl.where(tl.rand(seed, at) > p, scale, 0.0)
    store(y_ptr, at, single(x_ptr, at, inside) * factor, inside)


@dropout.fused("cuda")
def _(x: Any, p: float, draw: Draw, inplace: bool) -> tuple:
    require_dtypes(x)
    numbers, start = (draw.seed, float(p), scale_of_kept(p)), starter(_dropout)

    def drop(x):
        y = np.empty(x.shape, x.dtype, like=x)
        start(np.ascontiguousarray(x, like=x), *numbers, y)
        return y

    return drop(x), drop
