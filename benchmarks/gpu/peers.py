"""mytorch's functions in PyTorch: those that it has not, made of those that it has."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def __getattr__(name: str) -> Any:
    """All others are PyTorch's own."""
    return getattr(F, name)


def squared_relu(input: Tensor) -> Tensor:
    return F.relu(input).square()


def swiglu(input: Tensor, dim: int = -1) -> Tensor:
    gate, x = input.chunk(2, dim)
    return F.silu(gate) * x


def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    gate, x = input.chunk(2, dim)
    return F.gelu(gate, approximate=approximate) * x


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    a, b = (input[..., 0::2], input[..., 1::2]) if interleaved else input.chunk(2, -1)
    rotated = a * cos - b * sin, a * sin + b * cos
    y = torch.stack(rotated, -1).reshape(input.shape) if interleaved else torch.cat(rotated, -1)
    return y.to(input.dtype)


def add_layer_norm(input: Tensor, residual: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    total = input + residual
    return F.layer_norm(total, *args, **kwargs), total


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def linear_activation(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "gelu"
) -> Tensor:
    return ACTIVATIONS[activation](F.linear(input, weight, bias))


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None = None, **kwargs: Any
) -> Tensor:
    kwargs.pop("options", None)
    if linear_weight.ndim > 2:
        raise NotImplementedError("a linear map to several dims isn't compared")
    return F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, **kwargs)


def self_attention(
    qkv: Tensor, num_heads: int, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    B, T, width = qkv.shape
    q, k, v = (part.view(B, T, num_heads, -1).transpose(1, 2) for part in qkv.split(width // 3, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    return y.transpose(1, 2).reshape(B, T, width // 3)


def cached_attention(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, position: int,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    new = key.shape[2]
    end = position + new
    key_cache[:, :, position:end], value_cache[:, :, position:end] = key, value
    seen = None
    if new > 1:
        seen = torch.ones(new, end, dtype=torch.bool, device=query.device).tril(position)
    keys, values = key_cache[:, :, :end], value_cache[:, :, :end]
    return F.scaled_dot_product_attention(query, keys, values, seen, scale=scale, enable_gqa=enable_gqa)
