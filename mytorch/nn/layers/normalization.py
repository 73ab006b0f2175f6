"""Normalization layers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...ops import empty
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter


class LayerNorm(Module):
    """Normalize the last dims to mean 0 and variance 1, then scale and shift them: see `F.layer_norm`.

    Args:
        normalized_shape: the sizes of these dims; an int for the last one only.
        eps: added to the variance.
        elementwise_affine: whether there is a weight (ones at first).
        bias: whether there is a bias (zeros at first) beside it.
        fused: use the fused kernel.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None, fused: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            normalized_shape = (operator.index(normalized_shape),)
        self.normalized_shape, self.eps, self.fused = tuple(normalized_shape), eps, fused
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            value = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, fused=self.fused)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"
