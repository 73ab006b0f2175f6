"""Chunk: what an update formula works on, and the steps that many formulas share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.device import RawArray

CHUNK = 1 << 16  # elements: with gradient, state and scratch they stay in the cache
CHUNK_CUDA = 1 << 24  # a GPU wants long vectors; this only bounds the scratch memory


class Chunk:
    """A section of a FlatBuffer, for an update to work on in place.

    Attributes:
        data, grad: parameters and gradients, raw arrays: 1-D, or in a parameter's shape for an optimizer that
            works `by_parameter`; float32 for half-precision parameters.
        state: the optimizer's vectors by name.
        scratch: as large as `data`, with arbitrary content.
    """

    __slots__ = ("data", "grad", "state", "scratch", "_spare")

    def __init__(
        self, data: RawArray, grad: RawArray, state: dict[str, RawArray], scratch: RawArray, spare: RawArray
    ):  # fmt: skip
        self.data, self.grad, self.state, self.scratch, self._spare = data, grad, state, scratch, spare

    def penalized_grad(self, group: dict[str, Any]) -> RawArray:
        """Returns grad (-grad if maximize) + weight_decay data, which is not to be written.

        That is the gradient of an L2-penalized loss. If the decay is decoupled, the data shrink by themselves
        instead: data <- (1 - lr weight_decay) data.
        """
        g, maximize, weight_decay = self._spare, group.get("maximize"), group["weight_decay"]
        if weight_decay != 0 and group.get("decoupled_weight_decay"):
            self.data *= 1 - group["lr"] * weight_decay
            weight_decay = 0
        if weight_decay != 0:
            np.multiply(self.data, weight_decay, out=g)
            return np.subtract(g, self.grad, out=g) if maximize else np.add(g, self.grad, out=g)
        return np.negative(self.grad, out=g) if maximize else self.grad

    def average(self, mean: RawArray, g: RawArray, beta: float) -> None:
        """mean <- beta mean + (1 - beta) g, in place; uses the scratch."""
        np.subtract(g, mean, out=self.scratch)  # mean + (1 - beta) (g - mean) is the same
        self.scratch *= 1 - beta
        mean += self.scratch

    def average_square(self, mean: RawArray, g: RawArray, beta: float) -> None:
        """mean <- beta mean + (1 - beta) g^2, in place; uses the scratch."""
        np.multiply(g, g, out=self.scratch)
        self.scratch *= 1 - beta
        mean *= beta
        mean += self.scratch
