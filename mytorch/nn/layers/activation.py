"""Activation layers: each calls the function of its name in `nn.functional`."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F
from ..module import Module


class _Activation(Module):
    """Base of the activations without arguments.

    Args:
        fused: use the fused kernel.
    """

    function: F.Composite

    def __init__(self, fused: bool | None = None):
        super().__init__()
        self.fused = fused

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, fused=self.fused)


class _InplaceActivation(Module):
    """Base of the activations that can write into their input.

    Args:
        inplace: do so.
        fused: use the fused kernel.
    """

    function: F.Composite

    def __init__(self, inplace: bool = False, fused: bool | None = None):
        super().__init__()
        self.inplace, self.fused = inplace, fused

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.inplace, fused=self.fused)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InplaceActivation):
    """max(x, 0)"""

    function = F.relu


class SiLU(_InplaceActivation):
    """x sigmoid(x)"""

    function = F.silu


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))"""

    function = F.sigmoid


class Tanh(_Activation):
    """tanh(x)"""

    function = F.tanh


class GELU(Module):
    """x P(X <= x), X normally distributed: see `F.gelu`.

    Args:
        approximate: "none" or "tanh".
        fused: use the fused kernel.
    """

    def __init__(self, approximate: str = "none", fused: bool | None = None):
        super().__init__()
        self.approximate, self.fused = approximate, fused

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate, fused=self.fused)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    """exp(x_i) / sum_j exp(x_j) along a dim.

    Args:
        dim: along which the results sum to 1.
        fused: use the fused kernel (see `F.softmax`).
    """

    function = F.softmax

    def __init__(self, dim: int | None = None, fused: bool | None = None):
        super().__init__()
        self.dim, self.fused = dim, fused

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.dim, fused=self.fused)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """log(softmax(x)) along a dim; the arguments are those of `Softmax`."""

    function = F.log_softmax
