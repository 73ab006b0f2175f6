"""LoRALinear: a linear layer whose frozen weight gets a trained update of low rank."""

from __future__ import annotations

import math

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops import empty
from .. import functional as F
from .. import init
from ..functional.linear import ACTIVATIONS
from ..module import Module
from ..parameter import Parameter
from .dropout import Dropout
from .linear import Linear, LinearActivation


class LoRALinear(Module):
    """y = x W^T + b + alpha / rank · dropout(x) A^T B^T, for the W and b of a linear layer, which are frozen.

    B begins at zero, and y as that of the layer. After the update `LinearActivation` has its activation.
    (PyTorch has no such layer.)

    Args:
        linear: a `Linear` or `LinearActivation`.
        rank: of the update B A.
        alpha: scales the update, so that the learning rate need not follow the rank; by default `rank`.
        dropout_p: probability of dropping an input of A.

    Attributes:
        linear: the layer.
        lora_A: A (rank, in_features), from the uniform distribution between ± 1 / sqrt(in_features).
        lora_B: B (out_features, rank), zeros.

    Raises:
        TypeError: `linear` is another layer.
        ValueError: the rank isn't between 1 and the smaller side of W; dropout_p is not in [0, 1].

    Source: Hu et al., "LoRA", 2021, https://arxiv.org/abs/2106.09685, section 4.1.

    >>> layer = nn.LoRALinear(nn.Linear(4, 3), rank=2)
    >>> [name for name, p in layer.named_parameters() if p.requires_grad]
    ['lora_A', 'lora_B']
    >>> layer.merge()
    Linear(in_features=4, out_features=3, bias=True)
    """

    def __init__(self, linear: Linear, rank: int, alpha: float | None = None, dropout_p: float = 0.0):
        super().__init__()
        if not isinstance(linear, Linear):
            raise TypeError(f"LoRALinear is for Linear and LinearActivation, got {type(linear).__name__}")
        largest = min(linear.in_features, linear.out_features)
        if not 1 <= rank <= largest:
            shape = linear.out_features, linear.in_features
            raise ValueError(f"rank must be from 1 to {largest} for a weight of shape {shape}, got {rank}")
        self.linear = linear.requires_grad_(False)
        self.rank, self.alpha = rank, rank if alpha is None else alpha
        self.dropout = Dropout(dropout_p)
        options = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        self.lora_A = Parameter(empty((rank, linear.in_features), **options))
        self.lora_B = Parameter(empty((linear.out_features, rank), **options))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes A and B."""
        init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        init.zeros_(self.lora_B)

    def forward(self, input: Tensor) -> Tensor:
        update = F.linear(F.linear(self.dropout(input), self.lora_A), self.lora_B)
        y = F.linear(input, self.linear.weight, self.linear.bias) + update * (self.alpha / self.rank)
        return ACTIVATIONS[self.linear.activation](y) if isinstance(self.linear, LinearActivation) else y

    @no_grad()
    def merge(self) -> Linear:
        """Adds alpha / rank · B A to W; returns the linear layer, which now computes y without A and B."""
        self.linear.weight += (self.lora_B @ self.lora_A) * (self.alpha / self.rank)
        return self.linear

    def extra_repr(self) -> str:
        return f"rank={self.rank}, alpha={self.alpha}"
