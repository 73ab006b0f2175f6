"""
Attention to a cache of keys and values. One new token is one query of each head, and the time is that of
reading the cache: its keys are split into chunks for many programs, and a small kernel combines their
results. Several tokens take the kernel of `attention.py`.

Source: Dao et al., "Flash-Decoding for long-context inference", 2023,
    https://crfm.stanford.edu/2023/10/12/flashdecoding.html
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.cached_attention import cached_attention
from .attention import forward, require_supported
from .attention_parts import LOG2_E, block_of, head_of, heads_of, load_rows, settings, store_rows, strides_of
from .launch import chip, launch
from .sizes import cdiv, next_power_of_2

BLOCK_K = 64  # keys at a time in half precision; in float32 half as many: more would spill registers
MAX_CHUNKS = 64


@triton.jit(do_not_specialize=["keys", "chunk"])
def _decode(
    q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr, q_strides, k_strides, v_strides,
    heads, group, keys, chunk, chunks, scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """Attention of the queries that share a head of keys to one chunk of these.

    y (chunks, batch, head, EV) and the base-2 lse (chunks, batch, head) are those of the chunk alone.
    """
    # Shapes: q (batch, heads, 1, E); k (batch, heads / group, keys, E); v (batch, heads / group, keys, EV);
    # y (chunks, batch, heads, EV); lse (chunks, batch, heads)
    index, number = tl.program_id(0) // chunks, tl.program_id(0) % chunks
    batch, kv_head = index // (heads // group), index % (heads // group)
    k_head, v_head = head_of(k_ptr, k_strides, batch, kv_head), head_of(v_ptr, v_strides, batch, kv_head)
    q = load_rows(head_of(q_ptr, q_strides, batch, kv_head * group), q_strides[1], 0, group, ROWS, E, BLOCK_E)
    unit = scale * LOG2_E
    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    y = tl.zeros((ROWS, BLOCK_EV), tl.float32)
    end = tl.minimum(keys, (number + 1) * chunk)
    for first_key in range(number * chunk, end, BLOCK_K):
        k = load_rows(k_head, k_strides[2], first_key, end, BLOCK_K, E, BLOCK_E)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * unit
        s = tl.where(first_key + tl.arange(0, BLOCK_K)[None, :] < end, s, -float("inf"))
        before = largest
        largest = tl.maximum(before, tl.max(s, 1))
        shift = tl.where(largest == -float("inf"), 0.0, largest)
        p, shrink = tl.exp2(s - shift[:, None]), tl.exp2(before - shift)
        total = total * shrink + tl.sum(p, 1)
        v = load_rows(v_head, v_strides[2], first_key, end, BLOCK_K, EV, BLOCK_EV)
        y = tl.dot(p.to(v.dtype), v, y * shrink[:, None], input_precision=PRECISION)
    all_masked = total == 0.0
    row = (number * (tl.num_programs(0) // chunks) + index) * group
    store_rows(y_ptr, EV, row, row + group, y / tl.where(all_masked, 1.0, total)[:, None], EV)
    lse = tl.where(all_masked, -float("inf"), largest + tl.log2(total))
    member = tl.arange(0, ROWS)
    tl.store(lse_ptr + row + member, lse, mask=member < group)


@triton.jit(do_not_specialize=["chunks"])
def _combine(
    y_ptr, lse_ptr, out_ptr, rows, chunks, EV: tl.constexpr, BLOCK_EV: tl.constexpr, BLOCK: tl.constexpr
):
    """The mean of the chunks' results for one query, weighted by their sums of exponentials."""
    # Shapes: y (chunks, rows, EV); lse (chunks, rows); out (rows, EV)
    row, number = tl.program_id(0), tl.arange(0, BLOCK)
    lse = tl.load(lse_ptr + number * rows + row, mask=number < chunks, other=-float("inf"))
    largest = tl.max(lse, 0)
    weight = tl.exp2(lse - tl.where(largest == -float("inf"), 0.0, largest))
    total = tl.sum(weight, 0)
    y = load_rows(y_ptr + row * EV, rows * EV, 0, chunks, BLOCK, EV, BLOCK_EV)
    y = tl.sum(y * weight[:, None], 0, keep_dims=True) / tl.where(total == 0.0, 1.0, total)
    store_rows(out_ptr, EV, row, row + 1, y, EV)


@cached_attention.fused("cuda")
def _attention(q, k, v, k_cache, v_cache, position, scale, enable_gqa):
    """The checker has already written the new keys and values into the caches."""
    require_supported(q, k_cache, v_cache, scale, True)
    seen = (a[:, :, : position + q.shape[2]] for a in (k_cache, v_cache))
    q, k, v = (heads_of(a, a.shape[:2]) for a in (q, *seen))
    if q.shape[2] == 1 and q.size:
        return _one_query(q, k, v, scale), None
    scalars, meta = settings(q, k, v, True, scale)
    return forward(q, k, v, None, scalars, meta, position)[0], None


def _one_query(q: RawArray, k: RawArray, v: RawArray, scale: float) -> RawArray:
    """Returns the result (B, H, 1, EV) of queries that attend to all keys."""
    b, kv_heads, keys, ev = v.shape
    chunks, chunk = _split(keys, b * kv_heads)
    rows, group = b * q.shape[1], q.shape[1] // kv_heads
    result = np.empty((b, q.shape[1], 1, ev), q.dtype, like=q)
    y = result if chunks == 1 else np.empty((chunks, rows, ev), np.float32, like=q)
    lse = np.empty((chunks, rows), np.float32, like=q)
    _, meta = settings(q, k, v, True, scale)
    del meta["CAUSAL"]
    launch(_decode, (chunks * b * kv_heads,), q, k, v, y, lse, *[strides_of(a) for a in (q, k, v)],
           q.shape[1], group, keys, chunk, chunks, float(scale), **meta,
           ROWS=block_of(group), BLOCK_K=BLOCK_K * 2 // q.itemsize, num_warps=4, num_stages=2)
    if chunks > 1:
        launch(_combine, (rows,), y, lse, result, rows, chunks,
               EV=ev, BLOCK_EV=block_of(ev), BLOCK=next_power_of_2(chunks), num_warps=4)
    return result


def _split(keys: int, heads: int) -> tuple[int, int]:
    """Returns the number of chunks and their size: two programs for each multiprocessor, no chunk empty."""
    wanted = min(MAX_CHUNKS, cdiv(2 * chip().multiprocessors, heads))
    chunk = cdiv(cdiv(keys, wanted), BLOCK_K) * BLOCK_K
    return cdiv(keys, chunk), chunk
