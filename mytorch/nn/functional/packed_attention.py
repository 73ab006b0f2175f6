"""
Attention of tokens to each other, straight from one projection to queries, keys and values side by side:

    y = self_attention(nn.Linear(C, 3 * C)(x), num_heads)

Queries, keys and values are never taken apart and the heads never put together: kernels read and write them
where they lie, and so do they with gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor, from_raw
from ...ops.split import joined
from .activations import require_float
from .attention import attention_by_hand, check_options, scaled_dot_product_attention
from .cached_attention import cached_attention
from .composite import composite


@composite
def self_attention(
    qkv: Tensor,
    num_heads: int,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    sliding_window: int | None = None,
) -> Tensor:
    """`scaled_dot_product_attention` of queries, keys and values that lie side by side.

    Args:
        qkv: (B, T, 3 C): for each token the C numbers of its query, then its key's, then its value's.
        num_heads: H, a divisor of C; a head has E = C / H of each C numbers.
        attn_mask: broadcasts to (B, H, T, T).
        dropout_p, is_causal, scale, sliding_window: as there.

    Returns:
        (B, T, C), the heads of a token side by side.

    Raises:
        RuntimeError: shapes, dtypes or options don't fit.
    """
    B, T, width = qkv.shape
    q, k, v = qkv.reshape(B, T, 3, num_heads, width // 3 // num_heads).permute(2, 0, 3, 1, 4).unbind()
    y = scaled_dot_product_attention.reference(
        q, k, v, attn_mask, dropout_p, is_causal, scale, False, sliding_window
    )
    return y.transpose(1, 2).reshape(B, T, width // 3)


@self_attention.check
def _check(qkv, num_heads, attn_mask, dropout_p, is_causal, scale, sliding_window):
    B, T, E = _sizes("self_attention", qkv, num_heads)
    dropout, scale = check_options(
        qkv, (B, num_heads, T, T), E, attn_mask, dropout_p, is_causal, scale, sliding_window
    )
    return qkv, num_heads, attn_mask, dropout, is_causal, scale, sliding_window


def _sizes(name: str, qkv: Tensor, num_heads: int) -> tuple[int, int, int]:
    """B, T and E."""
    shape = qkv.data.shape
    require_float(qkv, name)
    if not isinstance(num_heads, int) or num_heads < 1:
        raise RuntimeError(f"{name}(): num_heads must be a positive int, got {num_heads!r}")
    if len(shape) != 3 or shape[2] % (3 * num_heads):
        raise RuntimeError(
            f"{name}(): expected qkv to be (B, T, 3 C) with C a multiple of num_heads={num_heads}, "
            f"got shape {shape}"
        )
    return shape[0], shape[1], shape[2] // 3 // num_heads


def packed(attention: Callable) -> Callable:
    """From a variant of `scaled_dot_product_attention`, on raw arrays, the one of `self_attention`."""

    def forward(qkv, num_heads, mask, dropout, is_causal, scale, window):
        q, k, v = heads_of_thirds(qkv, num_heads)
        y, vjp = attention(q, k, v, mask, dropout, is_causal, scale, False, window)

        def grad(g):
            dq, dk, dv, *of_mask = vjp(np.swapaxes(np.reshape(g, (*qkv.shape[:2], *y.shape[1::2])), 1, 2))
            parts = [np.swapaxes(d, 1, 2) for d in (dq, dk, dv)]
            whole = joined(parts, 2, new_dim=True)
            whole = np.stack(parts, 2) if whole is None else whole
            return np.reshape(whole, qkv.shape), None, *of_mask

        return side_by_side(y), grad

    return forward


def heads_of_thirds(qkv: Any, num_heads: int) -> tuple[Any, Any, Any]:
    """From (B, T, 3 C) the views (B, H, T, E) of queries, keys and values."""
    B, T, width = qkv.shape
    thirds = np.reshape(qkv, (B, T, 3, num_heads, width // 3 // num_heads))
    return tuple([np.swapaxes(thirds[:, :, i], 1, 2) for i in range(3)])


def side_by_side(y: Any) -> Any:
    """From (B, H, T, E) to (B, T, H E); a view, if a token's heads lie so in memory."""
    B, H, T, E = y.shape
    return np.reshape(np.swapaxes(y, 1, 2), (B, T, H * E))


self_attention.manual(packed(attention_by_hand))


def cached_self_attention(
    qkv: Tensor,
    num_heads: int,
    key_cache: Tensor,
    value_cache: Tensor,
    position: int,
    scale: float | None = None,
    fused: bool | None = None,
) -> Tensor:
    """`cached_attention` of queries, keys and values that lie side by side.

    Args:
        qkv: (B, T, 3 C), as for `self_attention`.
        key_cache, value_cache: (B, H, S, E), written in place at `position` to `position` + T.
        num_heads, position, scale, fused: as there.

    Returns:
        (B, T, C), without gradient.

    Raises:
        RuntimeError: shapes, dtypes or devices don't fit; the tokens don't fit into the caches; a gradient
            is wanted.
    """
    _sizes("cached_self_attention", qkv, num_heads)
    q, k, v = (from_raw(a) for a in heads_of_thirds(qkv.data._array, num_heads))
    if qkv.requires_grad:
        q.requires_grad_()  # for the one who refuses it
    y = cached_attention(q, k, v, key_cache, value_cache, position, scale, fused=fused)
    return from_raw(side_by_side(y.data._array))
