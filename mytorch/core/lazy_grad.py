"""Gradients that are computed where they are stored, without a temporary.

The product that is a weight's gradient is written straight into the parameter's slot of the flat buffer, a
second one is added to it by the product itself (beta = 1), and the gradient of an embedding, which has few
rows that aren't zero, needs no matrix of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backends.device import RawArray


class LazyGrad:
    """What a vjp may return as a leaf's gradient; for any other node it is computed at once.

    Args:
        shape: of the gradient.
        like: an array of its dtype and device.
        compute: `compute(out, beta)` sets `out` to the gradient + beta * out, beta being 0 or 1; with 0,
            `out` may be uninitialized.
    """

    __slots__ = ("shape", "like", "compute")

    def __init__(self, shape: Sequence[int], like: RawArray, compute: Callable[[RawArray, int], None]):
        self.shape, self.like, self.compute = tuple(shape), like, compute

    def array(self) -> RawArray:
        """Returns the gradient in memory of its own."""
        out = np.empty(self.shape, self.like.dtype, like=self.like)
        self.compute(out, 0)
        return out
