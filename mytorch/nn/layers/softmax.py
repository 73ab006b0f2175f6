"""Softmax layers: Softmax, LogSoftmax, Softmin, Softmax2d."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from ..module import Module
from .activation import _Activation

WARN_CALLER = 5  # the stack level at which a softmax without a dim warns: the caller of the module


class Softmax(_Activation):
    """exp(x_i) / sum_j exp(x_j) along a dim.

    Args:
        dim: along which the results sum to 1.

    >>> nn.Softmax(dim=0)(mytorch.tensor([1.0, 1.0, 2.0]))
    tensor([0.21194 0.21194 0.57612])
    """

    function = F.softmax

    def __init__(self, dim: int | None = None):
        super().__init__(dim=dim)

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.dim, WARN_CALLER)


class LogSoftmax(Softmax):
    """log(softmax(x)) along a dim; the arguments are those of `Softmax`.

    >>> nn.LogSoftmax(dim=0)(mytorch.tensor([1.0, 1.0]))
    tensor([-0.69315 -0.69315])
    """

    function = F.log_softmax


class Softmin(_Activation):
    """softmax(-x) along a dim.

    >>> nn.Softmin(dim=0)(mytorch.tensor([1.0, 1.0, 2.0]))
    tensor([0.42232 0.42232 0.15536])
    """

    def __init__(self, dim: int | None = None):
        super().__init__(dim=dim)

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, WARN_CALLER)


class Softmax2d(Module):
    """softmax over the channels at each position of (N, C, H, W) or (C, H, W).

    Raises (when called):
        ValueError: the input has other than 3 or 4 dims.

    >>> nn.Softmax2d()(mytorch.ones(1, 2, 3, 3)).shape
    Size([1, 2, 3, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)
