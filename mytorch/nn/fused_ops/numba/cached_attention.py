"""
Attention of new tokens to a cache, also of queries, keys and values side by side. One new token reads each
key and value once: a head's keys are split into chunks for several threads; each has its own softmax, and at
the end the results are combined:

    y = sum_c exp(m_c - m) y_c / sum_c exp(m_c - m) l_c,   m_c, l_c: maximum and sum of exp of chunk c

Source: Dao et al., "Flash-Decoding for long-context inference", 2023,
https://crfm.stanford.edu/2023/10/12/flashdecoding.html
"""

from __future__ import annotations

import numpy as np

from ....backends.jit import device, kernel, prange, routine
from ...functional.cached_attention import cached_attention
from ...functional.cached_self_attention import cached_self_attention
from ...functional.composite import Unsupported
from .approximations import ZERO, exp32
from .attention import attention
from .attention_parts import LOWEST, addresses, rows_contiguous
from .memory import floats
from .moments import require_single

CHUNK = 128  # keys
NO_ANGLES = np.empty((1, 0), np.float32)
GRAIN = 1 << 9  # elements of `parts`; with fewer, one thread is faster


@device
def row_of(array, batch, head, row, features):
    return floats(array[0] + batch * array[1] + head * array[2] + row * array[3], features)


@routine
def attend(q, k, v, batch, head, kv_head, first, last, features, value_features, scale, scores, part):
    """One query and the keys `first` to `last` - 1: weighted sum of values, maximum, sum of exponentials."""
    query, largest, total = row_of(q, batch, head, 0, features), LOWEST, ZERO
    for j in range(first, last):
        key, inner = row_of(k, batch, kv_head, j, features), ZERO
        for e in range(features):
            inner += query[e] * key[e]
        scores[j - first] = inner * scale
        largest = max(largest, inner * scale)
    for j in range(last - first):
        scores[j] = exp32(scores[j] - largest)
        total += scores[j]
    for e in range(value_features):
        part[e] = ZERO
    for j in range(first, last):
        value = row_of(v, batch, kv_head, j, value_features)
        for e in range(value_features):
            part[e] += scores[j - first] * value[e]
    part[value_features], part[value_features + 1] = largest, total


@kernel(grain=GRAIN)
def _decode(q, k, v, parts, y, kv_heads, keys, features, scale):
    """`parts` is (batches, heads, chunks, value features + 2), y (batches, heads, value features)."""
    batches, heads, chunks, width = parts.shape
    group, value_features = heads // kv_heads, width - 2
    for item in prange(batches * kv_heads * chunks):
        batch, kv_head, chunk = item // chunks // kv_heads, item // chunks % kv_heads, item % chunks
        first = chunk * CHUNK
        last, scores = min(keys, first + CHUNK), np.empty(CHUNK, np.float32)
        for head in range(kv_head * group, kv_head * group + group):
            part = parts[batch, head, chunk]
            attend(q, k, v, batch, head, kv_head, first, last, features, value_features, scale, scores, part)
    for row in range(batches * heads):
        combine(parts[row // heads, row % heads], y[row // heads, row % heads])


@routine
def combine(parts, y):
    """y = the weighted sum of values of a head, of those of its chunks."""
    largest, total, value_features = LOWEST, ZERO, y.size
    for chunk in range(parts.shape[0]):
        largest = max(largest, parts[chunk, value_features])
    y[:] = ZERO
    for chunk in range(parts.shape[0]):
        part = parts[chunk]
        factor = exp32(part[value_features] - largest)
        total += factor * part[value_features + 1]
        for e in range(value_features):
            y[e] += factor * part[e]
    for e in range(value_features):
        y[e] /= total


def _one_query(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """Returns the result (B, H, Ev) of queries (B, H, 1, E) that attend to all keys."""
    q, k, v = rows_contiguous(q), rows_contiguous(k), rows_contiguous(v)
    (batches, heads, _, features), (_, kv_heads, keys, width) = q.shape, v.shape
    parts = np.empty((batches, heads, -(-keys // CHUNK), width + 2), np.float32)
    y = np.empty((batches, heads, width), np.float32)
    _decode(*addresses(q, k, v), parts, y, kv_heads, keys, features, np.float32(scale))
    return y


@cached_attention.fused("cpu")
def _cached_attention(q, k, v, k_cache, v_cache, position, scale, enable_gqa):
    keys = position + q.shape[2]
    k, v = k_cache[:, :, :keys], v_cache[:, :, :keys]
    if q.shape[2] != 1 or q.dtype != np.float32:
        return attention(q, k, v, None, None, True, scale, enable_gqa, None, position=position)[0], None
    return _one_query(q, k, v, scale)[:, :, None], None


@routine
def rotate(x, cos, sin, out):
    """out = x with the pairs of features e and e + E / 2 rotated, if there are angles."""
    half = cos.size
    for e in range(half):
        a, b, c, s = x[e], x[e + half], cos[e], sin[e]
        out[e], out[e + half] = a * c - b * s, a * s + b * c
    for e in range(2 * half, x.size):
        out[e] = x[e]


@kernel(compiled_twice=True)
def _store(qkv, cos, sin, q, k, v, kv_heads):
    """Writes the rotated queries of qkv (B, H + 2 K, E) to q (B, H, E), its rotated keys and its values to
    rows of the caches, whose addresses and strides are k and v. The angles are (B or 1, E / 2)."""
    batches, heads, features = q.shape
    for batch in prange(batches):
        row = min(batch, cos.shape[0] - 1)
        for head in range(heads):
            rotate(qkv[batch, head], cos[row], sin[row], q[batch, head])
        for head in range(kv_heads):
            rotate(qkv[batch, heads + head], cos[row], sin[row], row_of(k, batch, head, 0, features))
            value = row_of(v, batch, head, 0, features)
            for e in range(features):
                value[e] = qkv[batch, heads + kv_heads + head, e]


@cached_self_attention.fused("cpu")
def _cached_self_attention(qkv, num_heads, k_cache, v_cache, position, scale, cos, sin):
    """One new token."""
    require_single(qkv)
    if k_cache.strides[3] != 4 or v_cache.strides[3] != 4:
        raise Unsupported("the features of a key or value must be contiguous in the caches")
    batches, kv_heads, _, features = k_cache.shape
    if cos is None:
        cos = sin = NO_ANGLES
    else:
        cos, sin = (np.ascontiguousarray(a).reshape(-1, features // 2) for a in (cos, sin))
    qkv = np.ascontiguousarray(qkv).reshape(batches, num_heads + 2 * kv_heads, features)
    q, end = np.empty((batches, num_heads, features), np.float32), position + 1
    new = addresses(k_cache[:, :, position:end], v_cache[:, :, position:end])
    _store(qkv, cos, sin, q, *new, kv_heads)
    y = _one_query(q[:, :, None], k_cache[:, :, :end], v_cache[:, :, :end], scale)
    return y.reshape(batches, 1, num_heads * features), None
