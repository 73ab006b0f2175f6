"""mytorch's functions in PyTorch: those that it has not, made of those that it has."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def __getattr__(name: str) -> Any:
    """All others are PyTorch's own."""
    return getattr(F, name)


def squared_relu(input: Tensor) -> Tensor:
    return F.relu(input).square()


def swiglu(input: Tensor) -> Tensor:
    gate, x = input.chunk(2, -1)
    return F.silu(gate) * x


def geglu(input: Tensor) -> Tensor:
    gate, x = input.chunk(2, -1)
    return F.gelu(gate) * x


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = input.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(input.dtype)


def add_layer_norm(input: Tensor, residual: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    total = input + residual
    return F.layer_norm(total, *args), total


def linear_activation(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.linear(input, weight, bias))


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(input, linear_weight), target)


def self_attention(qkv: Tensor, num_heads: int, is_causal: bool) -> Tensor:
    q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2).flatten(2)


def cached_attention(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, position: int
) -> Tensor:
    """One new token."""
    key_cache[:, :, position : position + 1], value_cache[:, :, position : position + 1] = key, value
    keys, values = key_cache[:, :, : position + 1], value_cache[:, :, : position + 1]
    return F.scaled_dot_product_attention(query, keys, values)
