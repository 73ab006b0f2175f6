"""Linear layers, and layers that only pass on or reshape."""

from __future__ import annotations

import math
from typing import Any

from ...ops import empty, flatten
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter


class Identity(Module):
    """y = x, whatever the arguments."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Make one dim of the dims `start_dim` to `end_dim`; by default of all but the first."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Linear(Module):
    """y = x W^T + b, from (..., in_features) to (..., out_features).

    Args:
        bias: whether there is a b.
        fused: use the fused kernel (see `F.linear`).

    Attributes:
        weight: (out_features, in_features), from the uniform distribution between ± 1 / sqrt(in_features).
        bias: (out_features,), from the same, or None.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        device: Any = None, dtype: Any = None, fused: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        self.in_features, self.out_features, self.fused = in_features, out_features, fused
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias, fused=self.fused)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )
