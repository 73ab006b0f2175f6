"""Attention of new tokens to all tokens so far, whose keys and values are kept in a cache."""

from __future__ import annotations

import operator

from ...autograd import is_grad_enabled
from ...backends.device import array_module, device_of, on
from ...core.tensor import Tensor, increment_version, raw_of
from ...ops import ones
from .attention import attention_manual, batch_shape, default_scale, scaled_dot_product_attention
from .composite import composite, require_float


@composite
def cached_attention(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, position: int,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:
    """Writes the keys and values of T new tokens into the caches and attends to all tokens so far: new token
    i attends to the `position` old ones and the new ones 0 to i.

    Args:
        query: (B, H, T, E)
        key, value: (B, H, T, E) and (B, H, T, Ev).
        key_cache, value_cache: (B, H, S, E) and (B, H, S, Ev), written in place at `position` to
            `position` + T.
        position: the number of tokens in the caches.
        scale: instead of 1 / sqrt(E).
        enable_gqa: keys, values and caches may have fewer heads, each for several heads of the query.

    Returns:
        (B, H, T, Ev), without gradient.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match; the tokens exceed the caches; a gradient is
            required.
    """
    end = position + key.shape[2]
    seen = ones(key.shape[2], end, dtype=bool, device=query.device).tril(position)
    keys, values = key_cache[:, :, :end], value_cache[:, :, :end]
    options = {"attn_mask": seen, "scale": scale, "enable_gqa": enable_gqa}
    return scaled_dot_product_attention(query, keys, values, **options, auto=True)


@cached_attention.check
def _check(query, key, value, key_cache, value_cache, position, scale, enable_gqa):
    tensors = (query, key, value, key_cache, value_cache)
    if is_grad_enabled() and any([t.requires_grad for t in tensors]):
        raise RuntimeError("cached_attention(): is not differentiable; call it under no_grad()")
    require_float(query.dtype, "cached_attention")
    if any([(t.dtype, t.device) != (query.dtype, query.device) for t in tensors]):
        kinds = ", ".join(f"{t.dtype} on {t.device}" for t in tensors)
        raise RuntimeError(f"cached_attention(): dtypes or devices differ: {kinds}")
    q, k, v, k_cache, v_cache = [t.data.shape for t in tensors]
    position = operator.index(position)
    if not (
        len(q) == len(k) == len(v) == len(k_cache) == len(v_cache) == 4
        and (k[:2], k[3], v[3]) == (k_cache[:2], k_cache[3], v_cache[3])
        and k_cache[:3] == v_cache[:3]
        and k[:3] == v[:3] == (q[0], k[1], q[2])
        and k[3] == q[3]
        and batch_shape(q, k, v, enable_gqa) == q[:2]
    ):
        raise RuntimeError(
            f"cached_attention(): shapes do not match (enable_gqa={enable_gqa}): query {q}, key {k}, "
            f"value {v}, key_cache {k_cache}, value_cache {v_cache}"
        )
    end = position + k[2]
    if not 0 <= position <= end <= k_cache[2]:
        raise RuntimeError(
            f"cached_attention(): {k[2]} tokens at position {position} exceed caches of {k_cache[2]}"
        )
    with on(query.device):
        for cache, new in ((key_cache, key), (value_cache, value)):
            raw_of(cache)[:, :, position:end] = raw_of(new)
            increment_version(cache)
    return *tensors, position, default_scale(scale, q[-1]), enable_gqa


@cached_attention.manual
def _attention(q, k, v, k_cache, v_cache, position, scale, enable_gqa):
    length, end = q.shape[2], position + q.shape[2]
    seen = None
    if length > 1 and position:
        with on(device_of(q)):
            seen = array_module(device_of(q)).tri(length, end, position, dtype=bool)
    k, v, is_causal = k_cache[:, :, :end], v_cache[:, :, :end], length > 1 and not position
    return attention_manual(q, k, v, seen, None, is_causal, scale, enable_gqa, None)[0], None
