"""
Flash attention: each program has a tile of queries, loops over tiles of keys, and updates the softmax with
each of them; the matrix of scores is never stored. Saved for backward are the result and, for each query, the
logarithm of its sum of exponentials. `attention_backward.py` has the gradients.

Sources:
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, https://arxiv.org/abs/1805.02867
    Dao et al., "FlashAttention", 2022, https://arxiv.org/abs/2205.14135, algorithm 1
    Dao, "FlashAttention-2", 2023, https://arxiv.org/abs/2307.08691, 3.1
"""

from __future__ import annotations

import math

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ....core.grad_accumulator import LazyGrad
from ....core.unbroadcast import unbroadcast
from ...functional.attention import batch_shape, scaled_dot_product_attention
from ...functional.composite import Unsupported
from ...functional.self_attention import packed, self_attention
from .attention_backward import backward, mask_backward
from .attention_configs import configs_of
from .attention_parts import (
    LOG2_E,
    by_head,
    head_of,
    heads_of,
    keep_mask,
    keys_of,
    launch_tiles,
    load_rows,
    masked,
    new_heads,
    products,
    sees,
    settings,
    store_rows,
)
from .launch import require_dtypes
from .tune import tuned

MAX_E = 256  # features of a head


@tuned(configs_of("forward"), key=("length", "keys"))
@triton.jit(do_not_specialize=["seed", "position"])
def _forward(
    q_ptr, k_ptr, v_ptr, mask_ptr, y_ptr, lse_ptr, log_total_ptr, q_strides, k_strides, v_strides,
    mask_strides, y_strides, heads, group, length, keys, scale, window, seed, dropout_p, kept_scale, position,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, STEP: tl.constexpr,
):
    """BLOCK_Q queries of one head; query i has the position `position` + i among the keys.

    With a mask the logarithm of the sum is stored in `log_total_ptr`, instead of as a part of lse.

    Shapes: q (batch, heads, length, E); k (batch, heads / group, keys, E);
    v (batch, heads / group, keys, EV); mask (batch, heads, length, keys); y (batch, heads, length, EV);
    lse, log_total (batch, heads, length)
    """
    tiles = tl.cdiv(length, BLOCK_Q)
    index = tl.program_id(0) // tiles
    batch, head = index // heads, index % heads
    first_query = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_Q  # the last queries may see the most keys
    query = first_query + tl.arange(0, BLOCK_Q)[:, None]
    q_head, y_head = head_of(q_ptr, q_strides, batch, head), head_of(y_ptr, y_strides, batch, head)
    k_head = head_of(k_ptr, k_strides, batch, head // group)
    v_head = head_of(v_ptr, v_strides, batch, head // group)
    q = load_rows(q_head, q_strides[2], first_query, length, BLOCK_Q, E, BLOCK_E)
    unit = scale * LOG2_E if log_total_ptr is None else LOG2_E
    largest = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    y = tl.zeros((BLOCK_Q, BLOCK_EV), tl.float32)
    bounds = keys_of(position + first_query, keys, window, CAUSAL, BLOCK_Q, BLOCK_K)
    for PART in tl.static_range(0 if window is not None else 1, 3):
        for first_key in range(bounds[PART], bounds[PART + 1], BLOCK_K):
            key = first_key + tl.arange(0, BLOCK_K)[None, :]
            k = load_rows(k_head, k_strides[2], first_key, keys, BLOCK_K, E, BLOCK_E)
            s = products(
                q, q_head, q_strides[2], first_query, length, k, k_head, k_strides[2], first_key, keys,
                E, STEP, PRECISION,
            )
            if mask_ptr is not None:
                mask_head = head_of(mask_ptr, mask_strides, batch, head)
                s = masked(s, scale, mask_head, mask_strides, query, key, length, keys)
            if PART != 1:
                s = tl.where(sees(position + query, key, keys, window, CAUSAL), s, -float("inf"))
            before = largest
            largest = tl.maximum(before, tl.max(s, 1))
            shift = tl.where(largest == -float("inf"), 0.0, largest)  # no key visible so far: not NaN
            if log_total_ptr is None:
                p = tl.exp2(s * unit - (shift * unit)[:, None])
            else:
                p = tl.exp2((s - shift[:, None]) * unit)  # a mask may be -3e38, and -inf times log2(e)
            shrink = tl.exp2((before - shift) * unit)
            total = total * shrink + tl.sum(p, 1)
            if seed is not None:
                p = tl.where(keep_mask(seed, dropout_p, index, query, key, length, keys), p, 0.0)
            v = load_rows(v_head, v_strides[2], first_key, keys, BLOCK_K, EV, BLOCK_EV)
            y = tl.dot(p.to(v.dtype), v, y * shrink[:, None], input_precision=PRECISION)
    all_masked = total == 0.0
    total = tl.where(all_masked, 1.0, total)
    store_rows(y_head, y_strides[2], first_query, length, y / total[:, None] * kept_scale, EV)
    row = tl.cast(index, tl.int64) * length + first_query + tl.arange(0, BLOCK_Q)
    inside = first_query + tl.arange(0, BLOCK_Q) < length
    if log_total_ptr is None:
        lse = largest * unit + tl.log2(total)
    else:
        lse = largest
        tl.store(log_total_ptr + row, tl.log2(total), mask=inside)
    tl.store(lse_ptr + row, tl.where(all_masked, float("inf"), lse), mask=inside)


@scaled_dot_product_attention.fused("cuda")
def _attention(q, k, v, mask, dropout, is_causal, scale, enable_gqa, window, soft_cap=None):
    if soft_cap is not None:
        raise Unsupported("the kernel has no soft cap")
    batch = require_supported(q, k, v, scale, enable_gqa)
    kv_batch = (*batch[:-1], k.shape[-3]) if enable_gqa else batch
    shapes = [a.shape for a in (q, k, v)]
    q, k, v = heads_of(q, batch), heads_of(k, kv_batch), heads_of(v, kv_batch)
    bias = None if mask is None else _mask_by_head(mask, (*batch, q.shape[2], k.shape[2]))
    scalars, meta = settings(q, k, v, is_causal, scale, window, dropout)
    y, lse, log_total = forward(q, k, v, bias, scalars, meta)

    def vjp(dy, out=None):
        arrays = [q, k, v, bias, y, heads_of(dy, batch)]
        found = backward(arrays, lse, log_total, scalars, meta, out)
        gradients = [
            _like_input(d, lead, shape)
            for d, lead, shape in zip(found, (batch, kv_batch, kv_batch), shapes, strict=True)
        ]
        if bias is None or bias.dtype == np.uint8:
            return tuple(gradients)

        def add_mask_gradient(out, beta):
            d = mask_backward(arrays, lse, log_total, scalars, meta).reshape(*batch, *bias.shape[2:])
            np.add(unbroadcast(d, mask.shape), out if beta else 0, out=out, casting="same_kind")

        return *gradients, LazyGrad(mask.shape, mask, add_mask_gradient)

    return y if len(batch) == 2 else y.reshape(*batch, *y.shape[2:]), vjp


def forward(
    q: RawArray, k: RawArray, v: RawArray, bias: RawArray | None, scalars: tuple, meta: dict,
    position: int = 0,
) -> tuple[RawArray, RawArray, RawArray | None]:
    """Returns (y, lse, log_total), y (B, H, L, EV); the first query has this position among the keys."""
    y = new_heads(q, v.shape[3])
    lse = np.empty(q.shape[:3], np.float32, like=q)
    log_total = None if bias is None else np.empty_like(lse)
    launch_tiles(_forward, "BLOCK_Q", [q, k, v, bias, y], [lse, log_total], (*scalars, position), meta)
    return y, lse, log_total


def require_supported(
    q: RawArray, k: RawArray, v: RawArray, scale: float, enable_gqa: bool
) -> tuple[int, ...]:
    """Returns the leading dims of the result; raises `Unsupported` if there is no kernel for it."""
    require_dtypes(q, k, v)
    if not (0 < q.shape[-1] <= MAX_E and 0 < v.shape[-1] <= MAX_E):
        raise Unsupported(
            f"the kernel is for heads of 1 to {MAX_E} features, got {q.shape[-1]}, {v.shape[-1]}"
        )
    if not 0 < scale < math.inf:
        raise Unsupported(f"the kernel's scale is a positive number, got {scale}")
    if not enable_gqa:
        return batch_shape(q.shape, k.shape, v.shape, False)
    if k.shape[-3] != v.shape[-3]:
        raise Unsupported(
            f"the kernel's keys and values have the same number of heads, got {k.shape[-3]}, {v.shape[-3]}"
        )
    return (*np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3]), q.shape[-3])


def _mask_by_head(mask, shape):
    """Returns the mask as (B, H, L, S): floats, or 0 and 1 for a bool mask."""
    mask = np.broadcast_to(mask, shape)
    return by_head(mask.view(np.uint8) if mask.dtype == bool else mask, shape[:-2])


def _like_input(d, batch, shape):
    """Returns a gradient (B, H, n, e) in the shape of its input."""
    if d.shape == shape:
        return d
    d = d.reshape(*batch, *d.shape[2:])
    return d if d.shape == shape else unbroadcast(d, shape)


self_attention.fused("cuda")(packed(_attention, writes=True))
