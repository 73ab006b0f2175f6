"""
Self-attention of one projection that holds queries, keys and values side by side:

    y = self_attention(nn.Linear(C, 3 * C)(x), num_heads)

Queries, keys and values are not copied apart and heads not joined by a copy: kernels read and write them in
place, and gradients likewise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends.device import RawArray
from ...core.tensor import Tensor
from .attention import attention_manual, check_options, scaled_dot_product_attention
from .composite import composite, require_float


@composite
def self_attention(
    qkv: Tensor, num_heads: int, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, sliding_window: int | None = None,
) -> Tensor:
    """Returns `scaled_dot_product_attention` of queries, keys and values stored side by side.

    Args:
        qkv: (B, T, 3 C): for each token C elements of its query, then of its key, then of its value.
        num_heads: H, a divisor of C; a head has E = C / H features.
        attn_mask: broadcasts to (B, H, T, T).
        dropout_p, is_causal, scale, sliding_window: see `scaled_dot_product_attention`.

    Returns:
        (B, T, C), the heads of a token side by side.

    Raises:
        RuntimeError: shapes, dtypes or options do not match.
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
    """Returns B, T and E; raises unless they match."""
    shape = qkv.data.shape
    require_float(qkv.dtype, name)
    if not isinstance(num_heads, int) or num_heads < 1:
        raise RuntimeError(f"{name}(): num_heads must be a positive int, got {num_heads!r}")
    if len(shape) != 3 or shape[2] % (3 * num_heads):
        raise RuntimeError(
            f"{name}(): expected qkv to be (B, T, 3 C) with C a multiple of num_heads={num_heads}, "
            f"got shape {shape}"
        )
    return shape[0], shape[1], shape[2] // 3 // num_heads


def packed(attention: Callable, writes: bool = False) -> Callable:
    """Returns the variant of `self_attention` made of a variant of `scaled_dot_product_attention`.

    Args:
        writes: its vjp takes the arrays into which it writes the gradients of queries, keys and values.
    """

    def forward(qkv, num_heads, mask, dropout, is_causal, scale, window):
        q, k, v = heads_of_thirds(qkv, num_heads)
        y, vjp = attention(q, k, v, mask, dropout, is_causal, scale, False, window)

        def self_attention_vjp(g):
            dy = g.reshape(*qkv.shape[:2], *y.shape[1::2]).swapaxes(1, 2)
            if writes:
                dqkv = np.empty(qkv.shape, qkv.dtype, like=qkv)
                return dqkv, None, *vjp(dy, heads_of_thirds(dqkv, num_heads))[3:]
            dq, dk, dv, *dmask = vjp(dy)
            dqkv = np.stack((dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2)), 2)
            return dqkv.reshape(qkv.shape), None, *dmask

        return side_by_side(y), self_attention_vjp

    return forward


def heads_of_thirds(qkv: RawArray, num_heads: int) -> tuple[RawArray, RawArray, RawArray]:
    """Returns of (B, T, 3 C) the views (B, H, T, E) of queries, keys and values."""
    B, T, width = qkv.shape
    thirds = qkv.reshape(B, T, 3, num_heads, width // 3 // num_heads)
    return tuple(np.transpose(thirds, (2, 0, 3, 1, 4)))


def side_by_side(y: RawArray) -> RawArray:
    """Reshapes (B, H, T, E) to (B, T, H E); a view if a token's heads are contiguous in memory."""
    B, H, T, E = y.shape
    return y.swapaxes(1, 2).reshape(B, T, H * E)


self_attention.manual(packed(attention_manual))
