"""Mixture of experts: a router sends each token to a few of many MLPs."""

from __future__ import annotations

import math

import numpy as np

from ...core.tensor import Tensor
from ...ops import zeros_like
from .. import functional as F
from ..container import ModuleList
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from .grouped_attention import GatedMLP
from .linear import Linear


class MixtureOfExperts(Module):
    """The weighted sum of the outputs of the `top_k` experts that the router chooses for a token.

        p = softmax(gate(x)),  y = sum of w_e experts[e](x) over the experts e of the top_k largest p_e

    The weights w are the p of the chosen experts, divided by their sum: the same as the softmax over the
    logits of the chosen ones. With one expert the weight is p itself, through which the router learns.

    Args:
        features: of the input and the result.
        hidden_features: of each expert, a `GatedMLP`.
        num_experts: E
        top_k: the number of experts for each token.
        capacity_factor: an expert takes at most this many times its share of the tokens, top_k N / E of N,
            rounded up; those beyond it are dropped: the expert adds nothing to their result. First choices
            come before second ones, and earlier tokens before later ones. None for no limit.

    `forward` returns a pair: the result, and the load-balancing loss

        E * sum of f_e P_e over all experts e

    where f_e is the number of times that e is chosen, divided by N, and P_e the mean of p_e over the tokens.
    It is least, `top_k`, where all experts are chosen equally often; a model adds it, times 0.01 or so, to
    its own loss.

    Raises:
        ValueError: `top_k` isn't between 1 and `num_experts`, or `capacity_factor` isn't positive.
    Source: Shazeer et al., 2017, https://arxiv.org/abs/1701.06538; the weights: Jiang et al., "Mixtral of
        Experts", 2024, https://arxiv.org/abs/2401.04088, section 2.1; capacity and loss: Fedus, Zoph &
        Shazeer, "Switch Transformers", 2021, https://arxiv.org/abs/2101.03961, section 2.2.

    >>> y, loss = nn.MixtureOfExperts(6, 16, num_experts=4)(mytorch.randn(2, 5, 6))
    >>> y.shape, loss.shape
    (Size([2, 5, 6]), Size([]))
    """

    def __init__(
        self, features: int, hidden_features: int, num_experts: int, top_k: int = 2,
        capacity_factor: float | None = None, bias: bool = False, device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise ValueError(f"top_k must be between 1 and num_experts={num_experts}, got {top_k}")
        if capacity_factor is not None and not capacity_factor > 0:
            raise ValueError(f"capacity_factor must be positive, got {capacity_factor}")
        self.num_experts, self.top_k, self.capacity_factor = num_experts, top_k, capacity_factor
        options = {"device": device, "dtype": dtype}
        self.gate = Linear(features, num_experts, bias=False, **options)
        self.experts = ModuleList(
            [GatedMLP(features, hidden_features, bias, **options) for _ in range(num_experts)]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])  # (N, features)
        weights, chosen, loss = self.route(rows)
        y, capacity = zeros_like(rows), self.capacity(len(rows))
        for e, expert in enumerate(self.experts):
            choice, token = (chosen == e).T.nonzero(as_tuple=True)  # ordered by choice, then by token
            choice, token = choice[:capacity], token[:capacity]
            weight = weights[token, choice].unsqueeze(-1).to(x.dtype)
            y = y.index_add(0, token, weight * expert(rows.index_select(0, token)))
        return y.reshape(x.shape), loss

    def route(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the weights (N, top_k) float32 and int64 numbers of the experts of each token, and the
        load-balancing loss."""
        p = F.softmax(self.gate(rows), -1, dtype=np.float32)  # (N, E)
        weights, chosen = p.topk(self.top_k, dim=-1)
        counts, n = F.one_hot(chosen, self.num_experts).sum((0, 1)), max(len(rows), 1)
        loss = self.num_experts * (counts / n * (p.sum(0) / n)).sum()
        if self.top_k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, chosen, loss

    def capacity(self, tokens: int) -> int | None:
        """Returns how many of these tokens an expert takes; None for all."""
        if self.capacity_factor is None:
            return None
        return math.ceil(self.capacity_factor * self.top_k * tokens / self.num_experts)

    def extra_repr(self) -> str:
        return f"num_experts={self.num_experts}, top_k={self.top_k}, capacity_factor={self.capacity_factor}"
