"""
The gradients of flash attention. Scores and weights are recomputed, tile by tile, from the queries, the keys
and the saved logarithm of each query's sum of exponentials:

    p = exp(s - lse),  dv = p^T dy,  dp = dy v^T,  ds = p (dp - delta),  dq = scale ds k,  dk = scale ds^T q

where delta, the sum of dp p over the keys, is that of dy y over the features. One kernel sums dq over the
keys, another dk and dv over the queries; no two programs write to one element, so results are deterministic.

Source: Dao, "FlashAttention-2", 2023, https://arxiv.org/abs/2307.08691, algorithm 2 and 3.2.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from .attention_configs import configs_of
from .attention_parts import (
    LOG2_E,
    head_of,
    keep_mask,
    keys_of,
    launch_tiles,
    load_rows,
    masked,
    new_heads,
    products,
    queries_of,
    sees,
    store_rows,
    weights_of,
)
from .tune import tuned


@tuned(configs_of("queries"), key=("length", "keys"))
@triton.jit(do_not_specialize=["seed"])
def queries_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, y_ptr, dy_ptr, dq_ptr, lse_ptr, log_total_ptr, delta_ptr, dmask_ptr,
    q_strides, k_strides, v_strides, mask_strides, y_strides, dy_strides, dq_strides,
    heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """dq and delta of BLOCK_Q queries of one head, and also ds if `dmask_ptr` isn't None."""
    tiles = tl.cdiv(length, BLOCK_Q)
    index = tl.program_id(0) // tiles
    batch, head = index // heads, index % heads
    first_query = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_Q  # the last queries may see the most keys
    query = first_query + tl.arange(0, BLOCK_Q)[:, None]
    row, inside = tl.cast(index, tl.int64) * length + query, query < length
    q_head, dy_head = head_of(q_ptr, q_strides, batch, head), head_of(dy_ptr, dy_strides, batch, head)
    y_head, dq_head = head_of(y_ptr, y_strides, batch, head), head_of(dq_ptr, dq_strides, batch, head)
    k_head = head_of(k_ptr, k_strides, batch, head // group)
    v_head = head_of(v_ptr, v_strides, batch, head // group)
    q = load_rows(q_head, q_strides[2], first_query, length, BLOCK_Q, E, BLOCK_E)
    dy = load_rows(dy_head, dy_strides[2], first_query, length, BLOCK_Q, EV, BLOCK_EV)
    y = load_rows(y_head, y_strides[2], first_query, length, BLOCK_Q, EV, BLOCK_EV)
    delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1, keep_dims=True)
    tl.store(delta_ptr + row, delta, mask=inside)
    lse = tl.load(lse_ptr + row, mask=inside, other=float("inf"))
    unit, log_total = scale * LOG2_E, None
    if log_total_ptr is not None:
        unit, log_total = LOG2_E, tl.load(log_total_ptr + row, mask=inside, other=0.0)
    dq = tl.zeros((BLOCK_Q, BLOCK_E), tl.float32)
    bounds = keys_of(first_query, keys, window, CAUSAL, BLOCK_Q, BLOCK_K)
    for PART in tl.static_range(0 if window is not None else 1, 3):
        for first_key in range(bounds[PART], bounds[PART + 1], BLOCK_K):
            key = first_key + tl.arange(0, BLOCK_K)[None, :]
            k = load_rows(k_head, k_strides[2], first_key, keys, BLOCK_K, E, BLOCK_E)
            v = load_rows(v_head, v_strides[2], first_key, keys, BLOCK_K, EV, BLOCK_EV)
            s = products(
                q, q_head, q_strides[2], first_query, length, k, k_head, k_strides[2], first_key, keys,
                E, STEP, PRECISION,
            )  # fmt: skip
            if mask_ptr is not None:
                mask_head = head_of(mask_ptr, mask_strides, batch, head)
                s = masked(s, scale, mask_head, mask_strides, query, key, length, keys)
            p = weights_of(s, unit, lse, log_total)
            if mask_ptr is not None and log_total_ptr is None:
                p = tl.where(s == -float("inf"), 0.0, p)  # lse may be NaN
            if PART != 1:
                p = tl.where(sees(query, key, keys, window, CAUSAL), p, 0.0)
            dp = products(
                dy, dy_head, dy_strides[2], first_query, length, v, v_head, v_strides[2], first_key, keys,
                EV, STEP, PRECISION,
            )  # fmt: skip
            if seed is not None:
                keep = keep_mask(seed, dropout_p, index, query, key, length, keys)
                dp = tl.where(keep, dp * kept_scale, 0.0)
            ds = p * (dp - delta)
            if PART != 1 or mask_ptr is not None:
                ds = tl.where(p == 0.0, 0.0, ds)  # delta may be NaN, which must not reach masked keys
            if dmask_ptr is not None:
                tl.store(dmask_ptr + row * keys + key, ds, mask=inside & (key < keys))
            dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    store_rows(dq_head, dq_strides[2], first_query, length, dq * scale, E)


@tuned(configs_of("keys"), key=("length", "keys"))
@triton.jit(do_not_specialize=["seed"])
def keys_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, dy_ptr, dk_ptr, dv_ptr, lse_ptr, log_total_ptr, delta_ptr,
    q_strides, k_strides, v_strides, mask_strides, dy_strides, dk_strides, dv_strides,
    heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dk and dv of BLOCK_K keys of one head, from all heads of queries that share it. Scores are transposed:
    (BLOCK_K, BLOCK_Q)."""
    tiles = tl.cdiv(keys, BLOCK_K)
    index = tl.program_id(0) // tiles
    batch, kv_head = index // (heads // group), index % (heads // group)
    first_key = tl.program_id(0) % tiles * BLOCK_K  # the first keys may be seen by the most queries
    key = first_key + tl.arange(0, BLOCK_K)[:, None]
    k_head, v_head = head_of(k_ptr, k_strides, batch, kv_head), head_of(v_ptr, v_strides, batch, kv_head)
    k = load_rows(k_head, k_strides[2], first_key, keys, BLOCK_K, E, BLOCK_E)
    v = load_rows(v_head, v_strides[2], first_key, keys, BLOCK_K, EV, BLOCK_EV)
    dk = tl.zeros((BLOCK_K, BLOCK_E), tl.float32)
    dv = tl.zeros((BLOCK_K, BLOCK_EV), tl.float32)
    bounds = queries_of(first_key, length, window, CAUSAL, BLOCK_Q, BLOCK_K)
    for member in range(group):
        head = kv_head * group + member
        q_head, dy_head = head_of(q_ptr, q_strides, batch, head), head_of(dy_ptr, dy_strides, batch, head)
        for PART in tl.static_range(0 if CAUSAL else 1, 3 if window is not None else 2):
            for first_query in range(bounds[PART], bounds[PART + 1], BLOCK_Q):
                query = first_query + tl.arange(0, BLOCK_Q)[None, :]
                row, inside = tl.cast(batch * heads + head, tl.int64) * length + query, query < length
                q = load_rows(q_head, q_strides[2], first_query, length, BLOCK_Q, E, BLOCK_E)
                dy = load_rows(dy_head, dy_strides[2], first_query, length, BLOCK_Q, EV, BLOCK_EV)
                lse = tl.load(lse_ptr + row, mask=inside, other=float("inf"))
                delta = tl.load(delta_ptr + row, mask=inside, other=0.0)
                unit, log_total = scale * LOG2_E, None
                if log_total_ptr is not None:
                    unit, log_total = LOG2_E, tl.load(log_total_ptr + row, mask=inside, other=0.0)
                s = products(
                    k, k_head, k_strides[2], first_key, keys, q, q_head, q_strides[2], first_query, length,
                    E, STEP, PRECISION,
                )  # fmt: skip
                if mask_ptr is not None:
                    mask_head = head_of(mask_ptr, mask_strides, batch, head)
                    s = masked(s, scale, mask_head, mask_strides, query, key, length, keys)
                p = weights_of(s, unit, lse, log_total)
                if mask_ptr is not None and log_total_ptr is None:
                    p = tl.where(s == -float("inf"), 0.0, p)  # lse may be NaN
                if PART != 1:
                    p = tl.where(sees(query, key, keys, window, CAUSAL), p, 0.0)
                dp = products(
                    v, v_head, v_strides[2], first_key, keys, dy, dy_head, dy_strides[2], first_query, length,
                    EV, STEP, PRECISION,
                )  # fmt: skip
                weight = p
                if seed is not None:
                    keep = keep_mask(seed, dropout_p, batch * heads + head, query, key, length, keys)
                    weight = tl.where(keep, p * kept_scale, 0.0)
                    dp = tl.where(keep, dp * kept_scale, 0.0)
                dv = tl.dot(weight.to(dy.dtype), dy, dv, input_precision=PRECISION)
                ds = p * (dp - delta)
                if PART != 1 or mask_ptr is not None:
                    ds = tl.where(p == 0.0, 0.0, ds)
                dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    store_rows(head_of(dk_ptr, dk_strides, batch, kv_head), dk_strides[2], first_key, keys, dk * scale, E)
    store_rows(head_of(dv_ptr, dv_strides, batch, kv_head), dv_strides[2], first_key, keys, dv, EV)


def backward(
    arrays: list[RawArray | None], lse: RawArray, log_total: RawArray | None, scalars: tuple, meta: dict,
    out: tuple[RawArray, RawArray, RawArray] | None = None,
) -> tuple[RawArray, RawArray, RawArray]:  # fmt: skip
    """Returns dq, dk and dv, (B, H, n, e) each, from [q, k, v, mask, y, dy]; or writes them into `out`."""
    q, k, v, mask, y, dy = arrays
    dq, dk, dv = out or (new_heads(a, a.shape[3]) for a in (q, k, v))
    delta = np.empty_like(lse)
    launch_tiles(queries_backward, "BLOCK_Q", [*arrays, dq], [lse, log_total, delta, None], scalars, meta)
    keys_arrays = [q, k, v, mask, dy, dk, dv]
    launch_tiles(keys_backward, "BLOCK_K", keys_arrays, [lse, log_total, delta], scalars, meta)
    return dq, dk, dv


def mask_backward(
    arrays: list[RawArray | None], lse: RawArray, log_total: RawArray | None, scalars: tuple, meta: dict
) -> RawArray:
    """Returns the gradient (B, H, L, S) of the float mask."""
    q, k = arrays[:2]
    ds = np.empty((*q.shape[:3], k.shape[2]), np.float32, like=q)
    scratch = [lse, log_total, np.empty_like(lse), ds]
    launch_tiles(queries_backward, "BLOCK_Q", [*arrays, new_heads(q, q.shape[3])], scratch, scalars, meta)
    return ds
