"""The gradient that an update of parameters uses."""

from __future__ import annotations

import numpy as np

from ....backends.jit import device
from .half import downcast_like, upcast

ZERO, ONE = np.float32(0), np.float32(1)


@device
def gradient(g, i, x, unscale, clip, weight_decay):
    """unscale clip g[i] + weight_decay x; g[i] itself becomes unscale g[i]."""
    d = upcast(g[i])
    if unscale != ONE:
        d *= unscale
        g[i] = downcast_like(d, g[i])
    d *= clip
    if weight_decay != ZERO:  # 0 times inf would be NaN
        d += weight_decay * x
    return d
