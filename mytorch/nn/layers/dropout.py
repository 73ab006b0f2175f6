"""Dropout layers; in evaluation mode they pass their input on."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.dropout import check_probability
from ..module import Module


class _Dropout(Module):
    """Base of the layers that drop at random.

    Args:
        p: the probability.
        inplace: write into the input.

    Raises:
        ValueError: p is no probability.
    """

    function: Callable

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        check_probability(p)
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zero elements with probability p and scale the others by 1 / (1 - p); in evaluation mode pass on.

    Args:
        p: the probability.
        inplace: write into the input.
        fused: use the fused kernel (see `F.dropout`).

    Raises:
        ValueError: p is no probability.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, fused: bool | None = None):
        super().__init__(p, inplace)
        self.fused = fused

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace, fused=self.fused)


class Dropout1d(_Dropout):
    """Zero whole channels of (N, C, L) or (C, L): see `F.dropout1d`."""

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Zero whole channels of (N, C, H, W): see `F.dropout2d`."""

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W): see `F.dropout3d`."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1, for SELU: see `F.alpha_dropout`."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels, (N, C, …): see `F.feature_alpha_dropout`."""

    function = staticmethod(F.feature_alpha_dropout)
