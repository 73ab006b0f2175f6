"""dropout. Backward draws the mask of forward again, from the seed: nothing is saved."""


import numpy as np

from ....backends.jit import prange
from ...functional.dropout import Draw, dropout, scale_of_kept
from .approximations import ZERO
from .elementwise import kernel, require_single
from .philox import halves_of, uniform32


@kernel
def _dropout(x, k0, k1, p, scale, y):
    for i in prange(x.size):
        y[i] = x[i] * (scale if uniform32(k0, k1, np.uint64(i)) > p else ZERO)


@dropout.fused("cpu")
def _(x: np.ndarray, p: float, draw: Draw, inplace: bool) -> tuple:
    require_single(x)
    scalars = *halves_of(draw.seed), np.float32(p), np.float32(scale_of_kept(p))

    def drop(x):
        y = np.empty(x.shape, x.dtype)
        _dropout(np.ascontiguousarray(x).reshape(-1), *scalars, y.reshape(-1))
        return y

    return drop(x), drop
