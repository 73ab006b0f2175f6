"""Slot: a parameter's place in the flat vector of gradients."""

from __future__ import annotations

import weakref
from typing import Any

from ..core.array import Array, wrap


class Slot:
    """A parameter's place in the gradient vector: `Tensor.grad_slot`, where backward puts a new gradient.

    Attributes:
        raw: the place, in the parameter's shape.
        vector: the whole gradient vector.
        span: where the parameter begins and ends in it, with the gap after it, which holds zeros.
    """

    __slots__ = ("raw", "vector", "span", "_given")

    def __init__(self, raw: Any, vector: Any, span: tuple[int, int]):
        self.raw, self.vector, self.span, self._given = raw, vector, span, None

    def reserve(self) -> Any:
        """The place, to be written; whoever kept the Array that was given before keeps its values."""
        kept = self._given and self._given()
        if kept is not None and kept._array is self.raw:
            kept._array = self.raw.copy()
        return self.raw

    def take(self, grad: Any) -> Array:
        """Write a gradient here, unless it was computed here, and return it."""
        if grad is not self.raw:
            self.reserve()[...] = grad
        given = wrap(self.raw)
        self._given = weakref.ref(given)
        return given

    def holds(self, grad: Array | None) -> bool:
        """Is this gradient the one that lies here?"""
        return grad is not None and grad._array is self.raw
