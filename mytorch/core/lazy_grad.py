"""
A gradient that a vjp hands over before it is computed, so that it is computed where it belongs: the product
that is a weight's gradient goes straight into the parameter's place in the flat vector, a second one is added
to it by the product itself (beta = 1), and the rows of an embedding's gradient need no matrix of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class LazyGrad:
    """What a vjp may return for a leaf's gradient; everywhere else it becomes an array at once.

    Args:
        shape: of the gradient.
        like: an array of its dtype and device.
        compute: `compute(out, beta)` sets `out` to the gradient + beta * out, beta being 0 or 1; with 0,
            what is in `out` means nothing.
    """

    __slots__ = ("shape", "like", "compute")

    def __init__(self, shape: Sequence[int], like: Any, compute: Callable[[Any, int], None]):
        self.shape, self.like, self.compute = tuple(shape), like, compute

    def array(self) -> Any:
        """The gradient, in memory of its own."""
        out = np.empty(self.shape, self.like.dtype, like=self.like)
        self.compute(out, 0)
        return out
