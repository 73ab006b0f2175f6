"""dropout. Backward draws the mask of forward again, from the seed: nothing is saved."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.dropout import Draw, dropout, scale_of_kept
from .elementwise import elements, launcher, load32, store
from .launch import require_dtypes


@triton.jit(do_not_specialize=["seed"])
def _dropout(x_ptr, seed, p, scale, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    factor = tl.where(tl.rand(seed, at) > p, scale, 0.0)
    store(y_ptr, at, load32(x_ptr, at, inside) * factor, inside)


@dropout.fused("cuda")
def _(x: RawArray, p: float, draw: Draw, inplace: bool) -> tuple:
    require_dtypes(x)
    scalars, start = (draw.seed, float(p), scale_of_kept(p)), launcher(_dropout)

    def drop(x):
        y = np.empty(x.shape, x.dtype, like=x)
        start(np.ascontiguousarray(x, like=x), *scalars, y)
        return y

    return drop(x), drop
