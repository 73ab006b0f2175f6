"""The gradient as an update of parameters sees it."""

from __future__ import annotations

import numpy as np

from ....backends.jit import device
from .half import narrow_like, widen

ZERO, ONE = np.float32(0), np.float32(1)


@device
def gradient(g, i, x, unscale, clip, penalty):
    """unscale clip g[i] + penalty x; g[i] itself becomes unscale g[i]."""
    d = widen(g[i])
    if unscale != ONE:
        d *= unscale
        g[i] = narrow_like(d, g[i])
    d *= clip
    if penalty != ZERO:  # 0 times inf would be NaN
        d += penalty * x
    return d
