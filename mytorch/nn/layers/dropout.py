"""Dropout layers; in evaluation mode they return their input."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.dropout import check_probability
from ..module import Module


class _Dropout(Module):
    """Base of the dropout layers.

    Args:
        p: the probability.
        inplace: write into the input.

    Raises:
        ValueError: p is not in [0, 1].
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
    """Zeroes elements with probability p and scales the others by 1 / (1 - p); returns the input in
    evaluation mode.

    Args:
        p: the probability.
        inplace: write into the input.

    Raises:
        ValueError: p is not in [0, 1].

    >>> nn.Dropout(1.0)(mytorch.ones(2))
    tensor([0.00000 0.00000])
    >>> nn.Dropout(0.5).eval()(mytorch.ones(2))
    tensor([1.00000 1.00000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if not (self.p and self.training):
            return input
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Zeroes whole channels of (N, C, L) or (C, L): see `F.dropout1d`.

    >>> nn.Dropout1d(0.5).eval()(mytorch.ones(2, 3, 4)).shape
    Size([2, 3, 4])
    """

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Zeroes whole channels of (N, C, H, W): see `F.dropout2d`.

    >>> nn.Dropout2d(0.5).eval()(mytorch.ones(2, 3, 4, 4)).shape
    Size([2, 3, 4, 4])
    """

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W): see `F.dropout3d`.

    >>> nn.Dropout3d(0.5).eval()(mytorch.ones(2, 3, 4, 4, 4)).shape
    Size([2, 3, 4, 4, 4])
    """

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that preserves mean 0 and variance 1, for SELU: see `F.alpha_dropout`.

    >>> nn.AlphaDropout(0.5).eval()(mytorch.ones(2))
    tensor([1.00000 1.00000])
    """

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels, (N, C, …): see `F.feature_alpha_dropout`.

    >>> nn.FeatureAlphaDropout(0.5).eval()(mytorch.ones(1, 2))
    tensor([[1.00000 1.00000]])
    """

    function = staticmethod(F.feature_alpha_dropout)
