"""mytorch's functions in PyTorch: those that it has not, made of those that it has, without copies."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.nn.functional.oracles import ORACLES


def __getattr__(name: str) -> Any:
    """All others are the tests' or PyTorch's own."""
    return ORACLES.get(name) or getattr(F, name)


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = input.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(input.dtype)


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(input, linear_weight), target)


def cached_attention(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, position: int
) -> Tensor:
    """One new token."""
    key_cache[:, :, position : position + 1], value_cache[:, :, position : position + 1] = key, value
    keys, values = key_cache[:, :, : position + 1], value_cache[:, :, : position + 1]
    return F.scaled_dot_product_attention(query, keys, values)
