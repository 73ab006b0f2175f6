"""
Attention of new tokens to a cache. One new token reads each key and value once: a head's keys are split into
chunks for several threads; each has its own softmax, and at the end the results are combined:

    y = sum_c exp(m_c - m) y_c / sum_c exp(m_c - m) l_c,   m_c, l_c: maximum and sum of exp of chunk c

Source: Dao et al., "Flash-Decoding for long-context inference", 2023,
https://crfm.stanford.edu/2023/10/12/flashdecoding.html
"""

from __future__ import annotations

import numpy as np

from ....backends.jit import device, kernel, prange, routine
from ...functional.cached_attention import cached_attention
from .approximations import ZERO, exp32
from .attention import attention
from .attention_parts import LOWEST, addresses, rows_contiguous
from .memory import floats

CHUNK = 128  # keys
GRAIN = 1 << 9  # elements of `parts`; with fewer, one thread is faster


@device
def _row(array, batch, head, row, features):
    return floats(array[0] + batch * array[1] + head * array[2] + row * array[3], features)


@routine
def _attend(q, k, v, batch, head, kv_head, first, last, features, value_features, scale, scores, part):
    """One query and the keys `first` to `last` - 1: weighted sum of values, maximum, sum of exponentials."""
    query, largest, total = _row(q, batch, head, 0, features), LOWEST, ZERO
    for j in range(first, last):
        key, inner = _row(k, batch, kv_head, j, features), ZERO
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
        value = _row(v, batch, kv_head, j, value_features)
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
            _attend(q, k, v, batch, head, kv_head, first, last, features, value_features, scale, scores, part)
    for row in range(batches * heads):
        batch, head = row // heads, row % heads
        largest, total = LOWEST, ZERO
        for chunk in range(chunks):
            largest = max(largest, parts[batch, head, chunk, value_features])
        y[batch, head] = ZERO
        for chunk in range(chunks):
            part = parts[batch, head, chunk]
            factor = exp32(part[value_features] - largest)
            total += factor * part[value_features + 1]
            for e in range(value_features):
                y[batch, head, e] += factor * part[e]
        for e in range(value_features):
            y[batch, head, e] /= total


@cached_attention.fused("cpu")
def _cached_attention(q, k, v, k_cache, v_cache, position, scale, enable_gqa):
    keys = position + q.shape[2]
    k, v = k_cache[:, :, :keys], v_cache[:, :, :keys]
    if q.shape[2] != 1 or q.dtype != np.float32:
        return attention(q, k, v, None, None, True, scale, enable_gqa, None, position=position)[0], None
    q, k, v = rows_contiguous(q), rows_contiguous(k), rows_contiguous(v)
    (batches, heads, _, features), width = q.shape, v.shape[3]
    parts = np.empty((batches, heads, -(-keys // CHUNK), width + 2), np.float32)
    y = np.empty((batches, heads, width), np.float32)
    _decode(*addresses(q, k, v), parts, y, k.shape[1], keys, features, np.float32(scale))
    return y[:, :, None], None
