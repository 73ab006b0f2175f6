"""Self-attention of new tokens to all tokens so far, of queries, keys and values side by side."""

from __future__ import annotations

import operator

import numpy as np

from ...autograd import is_grad_enabled
from ...backends.device import CPU, RawArray
from ...core.tensor import Tensor, from_raw, increment_version, raw_of
from .attention import attention_manual, default_scale
from .cached_attention import cached_attention
from .composite import composite
from .rotary import broadcasts, rotary_embedding, rotate
from .self_attention import side_by_side


@composite
def cached_self_attention(
    qkv: Tensor, num_heads: int, key_cache: Tensor, value_cache: Tensor, position: int,
    scale: float | None = None, cos: Tensor | None = None, sin: Tensor | None = None,
) -> Tensor:
    """Returns `cached_attention` of queries, keys and values stored side by side.

    Args:
        qkv: (B, T, (H + 2 K) E): for each token the queries of H heads, the keys of K heads, their values.
        num_heads: H, a multiple of K.
        key_cache, value_cache: (B, K, S, E), written in place at `position` to `position` + T.
        position: the number of tokens in the caches.
        scale: instead of 1 / sqrt(E).
        cos, sin: of the angles by which queries and keys are rotated, (T, E / 2), or (B, 1, T, E / 2) or
            broadcastable to it; see `rotary_embedding`.

    Returns:
        (B, T, H E), without gradient.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match; the tokens exceed the caches; a gradient is
            required.

    Its own variants are for one new token on a CPU, not in half precision. Otherwise the parts choose theirs.
    """
    return _of_parts(qkv, num_heads, key_cache, value_cache, position, scale, cos, sin, auto=True)


def _of_parts(qkv, num_heads, key_cache, value_cache, position, scale, cos, sin, auto=False):
    q, k, v = map(from_raw, heads_of(raw_of(qkv), num_heads, key_cache.shape[1]))
    if cos is not None:
        q, k = rotary_embedding(q, cos, sin, auto=auto), rotary_embedding(k, cos, sin, auto=auto)
    y = cached_attention(q, k, v, key_cache, value_cache, position, scale, True, auto=auto)
    return from_raw(side_by_side(raw_of(y)))


def heads_of(qkv: RawArray, num_heads: int, num_kv_heads: int) -> list[RawArray]:
    """Returns of (B, T, (H + 2 K) E) the views (B, H or K, T, E) of queries, keys and values."""
    B, T, width = qkv.shape
    total = num_heads + 2 * num_kv_heads
    heads = qkv.reshape(B, T, total, width // total).swapaxes(1, 2)
    return np.split(heads, (num_heads, num_heads + num_kv_heads), 1)


@cached_self_attention.check
def _check(qkv, num_heads, key_cache, value_cache, position, scale, cos, sin):
    tensors = [t for t in (qkv, key_cache, value_cache, cos, sin) if t is not None]
    if is_grad_enabled() and any([t.requires_grad for t in tensors]):
        raise RuntimeError("cached_self_attention(): is not differentiable; call it under no_grad()")
    if not isinstance(num_heads, int) or num_heads < 1:
        raise RuntimeError(f"cached_self_attention(): num_heads must be a positive int, got {num_heads!r}")
    shape, cache, values = (t.data.shape for t in (qkv, key_cache, value_cache))
    if (
        len(shape) != 3 or len(cache) != 4 or cache != values or shape[0] != cache[0]
        or not cache[1] or num_heads % cache[1] or shape[2] != (num_heads + 2 * cache[1]) * cache[3]
        or (cos is None) != (sin is None)
    ):
        raise RuntimeError(
            f"cached_self_attention(): shapes do not match: qkv {shape}, {num_heads} heads, "
            f"key_cache {cache}, value_cache {values}"
        )
    position, dtype = operator.index(position), qkv.dtype
    here = dtype.itemsize > 2 and all([t.dtype == dtype and t.device is CPU for t in tensors])
    if shape[1] != 1 or not here or not 0 <= position < cache[2]:  # the parts raise, if necessary
        return _of_parts(qkv, num_heads, key_cache, value_cache, position, scale, cos, sin)
    angles = (shape[0], 1, 1, cache[3] // 2)
    wrong = [a.shape[-1:] != angles[3:] or not broadcasts(a.shape, angles) for a in tensors[3:]]
    if any(wrong) or (wrong and cache[3] % 2):
        raise RuntimeError(
            f"cached_self_attention(): cos {tuple(cos.shape)}, sin {tuple(sin.shape)} can't be broadcast to "
            f"{angles}, for qkv {shape} and {cache[3]} features of a head"
        )
    for written in (key_cache, value_cache):
        increment_version(written)
    return qkv, num_heads, key_cache, value_cache, position, default_scale(scale, cache[3]), cos, sin


@cached_self_attention.manual
def _cached_self_attention(qkv, num_heads, key_cache, value_cache, position, scale, cos, sin):
    """One new token, which attends to all others: no mask."""
    q, k, v = heads_of(qkv, num_heads, key_cache.shape[1])
    if cos is not None:
        q, k = rotate(q, cos, sin, False), rotate(k, cos, sin, False)
    end = position + 1
    key_cache[:, :, position:end], value_cache[:, :, position:end] = k, v
    keys, values = key_cache[:, :, :end], value_cache[:, :, :end]
    return side_by_side(attention_manual(q, keys, values, None, None, False, scale, True, None)[0]), None
