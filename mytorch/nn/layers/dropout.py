"""Dropout layers."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F
from ..functional.dropout import check_probability
from ..module import Module


class Dropout(Module):
    """Zero elements with probability p and scale the others by 1 / (1 - p); in evaluation mode pass on.

    Args:
        p: the probability.
        inplace: write into the input.
        fused: use the fused kernel (see `F.dropout`).

    Raises:
        ValueError: p is no probability.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, fused: bool | None = None):
        super().__init__()
        check_probability(p)
        self.p, self.inplace, self.fused = p, inplace, fused

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace, fused=self.fused)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
