"""
The gradients of flash attention. Scores and weights are recomputed, tile by tile, from the queries, the keys
and the saved logarithm of each query's sum of exponentials:

    p = exp(s - lse),  dv = p^T dy,  dp = dy v^T,  ds = p (dp - delta),  dq = scale ds k,  dk = scale ds^T q

where delta, the sum of dp p over the keys, is that of dy y over the features; of a query that sees one key
ds is 0, where dp - delta would be a rounding error. Two kernels need seven products
a tile: one sums dq over the keys, another dk and dv over the queries, and both compute s and dp. Where there
are heads enough to fill the GPU, one kernel needs five: a program has a head, sums dk and dv in registers and
dq in memory. No two programs write to one element, and each adds in a fixed order, so results are
deterministic, which those of the source's atomic additions are not.

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
    others_seen,
    products,
    queries_of,
    sees,
    store_rows,
    weights_of,
)
from .launch import chip
from .sizes import cdiv
from .tune import tuned


@triton.jit
def store_delta(
    dy, y_head, y_stride, delta_ptr, index, first_query, length, EV: tl.constexpr, BLOCK_EV: tl.constexpr
):
    """Stores delta of some queries of head `index`, and returns it as a column."""
    # Shapes: delta (batch, heads, length)
    y = load_rows(y_head, y_stride, first_query, length, dy.shape[0], EV, BLOCK_EV)
    delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1, keep_dims=True)
    query = first_query + tl.arange(0, dy.shape[0])[:, None]
    tl.store(delta_ptr + tl.cast(index, tl.int64) * length + query, delta, mask=query < length)
    return delta


@triton.jit
def weights_and_ds(
    s, dp, unit, lse, log_total, delta, mask_ptr, mask_strides, batch, head, index, query, key,
    length, keys, scale, window, seed, dropout_p, kept_scale, CAUSAL: tl.constexpr, PARTIAL: tl.constexpr,
):
    """The weights of a tile after dropout, and ds. Of `query` and `key` one is (n, 1), the other (1, m).

    Args:
        s, dp: the products q k^T and dy v^T, or their transposes.
        index: of the head in (batch, head).
        PARTIAL: some queries may not see some keys.
    """
    # Shapes: mask (batch, heads, length, keys)
    if mask_ptr is not None:
        mask_head = head_of(mask_ptr, mask_strides, batch, head)
        s = masked(s, scale, mask_head, mask_strides, query, key, length, keys)
    p = weights_of(s, unit, lse, log_total)
    if mask_ptr is not None and not mask_ptr.dtype.element_ty.is_floating():
        p = tl.where(s == -float("inf"), 0.0, p)  # lse may be NaN
    if PARTIAL:
        p = tl.where(sees(query, key, keys, window, CAUSAL), p, 0.0)
    weight = p
    if seed is not None:
        keep = keep_mask(seed, dropout_p, index, query, key, length, keys)
        weight = tl.where(keep, p * kept_scale, 0.0)
        dp = tl.where(keep, dp * kept_scale, 0.0)
    ds = p * (dp - delta)
    if PARTIAL or mask_ptr is not None:
        # delta may be NaN, which must not reach masked keys; a product takes fewer registers than `or`
        zero = p * others_seen(query, keys, window, CAUSAL) == 0.0
        if mask_ptr is not None:
            zero |= (log_total == 0.0) & (p > 0.5)  # exp(0) is the whole sum
        ds = tl.where(zero, 0.0, ds)
    return weight, ds


@tuned(configs_of("queries"), key=("length", "keys"))
@triton.jit(do_not_specialize=["seed"])
def queries_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, y_ptr, dy_ptr, dq_ptr, lse_ptr, log_total_ptr, delta_ptr, dmask_ptr,
    q_strides, k_strides, v_strides, mask_strides, y_strides, dy_strides, dq_strides,
    heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    STEP: tl.constexpr,
):
    """dq and delta of BLOCK_Q queries of one head, and also ds if `dmask_ptr` isn't None."""
    # Shapes: q, dq (batch, heads, length, E); k (batch, heads / group, keys, E);
    # v (batch, heads / group, keys, EV); mask, dmask (batch, heads, length, keys);
    # y, dy (batch, heads, length, EV); lse, log_total, delta (batch, heads, length)
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
    delta = store_delta(dy, y_head, y_strides[2], delta_ptr, index, first_query, length, EV, BLOCK_EV)
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
            )
            dp = products(
                dy, dy_head, dy_strides[2], first_query, length, v, v_head, v_strides[2], first_key, keys,
                EV, STEP, PRECISION,
            )
            _, ds = weights_and_ds(
                s, dp, unit, lse, log_total, delta, mask_ptr, mask_strides, batch, head, index, query, key,
                length, keys, scale, window, seed, dropout_p, kept_scale, CAUSAL, PART != 1,
            )
            if dmask_ptr is not None:
                tl.store(dmask_ptr + row * keys + key, ds, mask=inside & (key < keys))
            dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    store_rows(dq_head, dq_strides[2], first_query, length, dq * scale, E)


@triton.jit
def keys_tile(
    batch, kv_head, first_key,
    q_ptr, k_ptr, v_ptr, mask_ptr, dy_ptr, dq_ptr, dk_ptr, dv_ptr, lse_ptr, log_total_ptr, delta_ptr, sum_ptr,
    q_strides, k_strides, v_strides, mask_strides, dy_strides, dq_strides, dk_strides, dv_strides,
    heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, STEP: tl.constexpr,
):
    """dk and dv of BLOCK_K keys of one head, from all heads of queries that share it; and what these keys add
    to dq, if `dq_ptr` isn't None. Scores are transposed: (BLOCK_K, BLOCK_Q).

    Shapes: q, dq, sum (batch, heads, length, E); k, dk (batch, heads / group, keys, E);
    v, dv (batch, heads / group, keys, EV); mask (batch, heads, length, keys);
    dy (batch, heads, length, EV); lse, log_total, delta (batch, heads, length)
    """
    key = first_key + tl.arange(0, BLOCK_K)[:, None]
    k_head, v_head = head_of(k_ptr, k_strides, batch, kv_head), head_of(v_ptr, v_strides, batch, kv_head)
    k = load_rows(k_head, k_strides[2], first_key, keys, BLOCK_K, E, BLOCK_E)
    v = load_rows(v_head, v_strides[2], first_key, keys, BLOCK_K, EV, BLOCK_EV)
    dk = tl.zeros((BLOCK_K, BLOCK_E), tl.float32)
    dv = tl.zeros((BLOCK_K, BLOCK_EV), tl.float32)
    bounds = queries_of(first_key, length, keys, window, CAUSAL, BLOCK_Q, BLOCK_K)
    END: tl.constexpr = 1 if dq_ptr is not None else 3 if window is not None else 2
    if dq_ptr is not None:  # one loop, as two would spill; it masks keys past the last, which would add to dq
        bounds = (bounds[0], bounds[3])
    for member in range(group):
        head = kv_head * group + member
        index = batch * heads + head
        q_head, dy_head = head_of(q_ptr, q_strides, batch, head), head_of(dy_ptr, dy_strides, batch, head)
        for PART in tl.static_range(0 if CAUSAL or dq_ptr is not None else 1, END):
            for first_query in range(bounds[PART], bounds[PART + 1], BLOCK_Q):
                query = first_query + tl.arange(0, BLOCK_Q)[None, :]
                row, inside = tl.cast(index, tl.int64) * length + query, query < length
                q = load_rows(q_head, q_strides[2], first_query, length, BLOCK_Q, E, BLOCK_E)
                dy = load_rows(dy_head, dy_strides[2], first_query, length, BLOCK_Q, EV, BLOCK_EV)
                lse = tl.load(lse_ptr + row, mask=inside, other=float("inf"))
                delta = tl.load(delta_ptr + row, mask=inside, other=0.0)
                unit, log_total = scale * LOG2_E, None
                if log_total_ptr is not None:
                    unit, log_total = LOG2_E, tl.load(log_total_ptr + row, mask=inside, other=0.0)
                if dq_ptr is not None:  # loaded early; nothing for the first keys that these queries see
                    seen = keys_of(first_query, keys, window, CAUSAL, BLOCK_Q, BLOCK_K)
                    begun = tl.where(first_key > seen[0], length, 0)
                    sum_head = sum_ptr + tl.cast(index, tl.int64) * length * E
                    dq = load_rows(sum_head, E, first_query, begun, BLOCK_Q, E, BLOCK_E)
                s = products(
                    k, k_head, k_strides[2], first_key, keys, q, q_head, q_strides[2], first_query, length,
                    E, STEP, PRECISION,
                )
                dp = products(
                    v, v_head, v_strides[2], first_key, keys, dy, dy_head, dy_strides[2], first_query, length,
                    EV, STEP, PRECISION,
                )
                weight, ds = weights_and_ds(
                    s, dp, unit, lse, log_total, delta, mask_ptr, mask_strides, batch, head, index, query,
                    key, length, keys, scale, window, seed, dropout_p, kept_scale, CAUSAL, PART != 1,
                )
                dv = tl.dot(weight.to(dy.dtype), dy, dv, input_precision=PRECISION)
                dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
                if dq_ptr is not None:
                    dq = tl.dot(tl.trans(ds.to(k.dtype)), k, dq, input_precision=PRECISION)
                    done = first_key + BLOCK_K >= seen[3]
                    dq_head = head_of(dq_ptr, dq_strides, batch, head)
                    store_rows(sum_head, E, first_query, tl.where(done, 0, length), dq, E)
                    store_rows(dq_head, dq_strides[2], first_query, tl.where(done, length, 0), dq * scale, E)
    store_rows(head_of(dk_ptr, dk_strides, batch, kv_head), dk_strides[2], first_key, keys, dk * scale, E)
    store_rows(head_of(dv_ptr, dv_strides, batch, kv_head), dv_strides[2], first_key, keys, dv, EV)


@tuned(configs_of("keys"), key=("length", "keys"))
@triton.jit(do_not_specialize=["seed"])
def keys_backward(
    q_ptr, k_ptr, v_ptr, mask_ptr, dy_ptr, dk_ptr, dv_ptr, lse_ptr, log_total_ptr, delta_ptr,
    q_strides, k_strides, v_strides, mask_strides, dy_strides, dk_strides, dv_strides,
    heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, STEP: tl.constexpr,
):
    """dk and dv of BLOCK_K keys of one head."""
    # Shapes: q (batch, heads, length, E); k, dk (batch, heads / group, keys, E);
    # v, dv (batch, heads / group, keys, EV); mask (batch, heads, length, keys);
    # dy (batch, heads, length, EV); lse, log_total, delta (batch, heads, length)
    tiles = tl.cdiv(keys, BLOCK_K)
    index = tl.program_id(0) // tiles
    first_key = tl.program_id(0) % tiles * BLOCK_K  # the first keys may be seen by the most queries
    keys_tile(
        index // (heads // group), index % (heads // group), first_key,
        q_ptr, k_ptr, v_ptr, mask_ptr, dy_ptr, None, dk_ptr, dv_ptr, lse_ptr, log_total_ptr, delta_ptr, None,
        q_strides, k_strides, v_strides, mask_strides, dy_strides, None, dk_strides, dv_strides,
        heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
        E, EV, BLOCK_E, BLOCK_EV, CAUSAL, PRECISION, BLOCK_Q, BLOCK_K, STEP,
    )


@tuned(configs_of("head"), key=("length", "keys"))
@triton.jit(do_not_specialize=["seed"])
def head_backward(
    q_ptr, k_ptr, v_ptr, y_ptr, dy_ptr, dq_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, sum_ptr,
    q_strides, k_strides, v_strides, y_strides, dy_strides, dq_strides, dk_strides, dv_strides,
    heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, STEP: tl.constexpr,
):
    """dk and dv of one head, and dq of all heads of queries that share it, whose sums are in `sum_ptr`."""
    # Shapes: q, dq, sum (batch, heads, length, E); k, dk (batch, heads / group, keys, E);
    # v, dv (batch, heads / group, keys, EV); y, dy (batch, heads, length, EV);
    # lse, delta (batch, heads, length)
    batch, kv_head = tl.program_id(0) // (heads // group), tl.program_id(0) % (heads // group)
    for head in range(kv_head * group, (kv_head + 1) * group):
        dy_head, y_head = head_of(dy_ptr, dy_strides, batch, head), head_of(y_ptr, y_strides, batch, head)
        for first_query in range(0, length, BLOCK_Q):
            dy = load_rows(dy_head, dy_strides[2], first_query, length, BLOCK_Q, EV, BLOCK_EV)
            index = batch * heads + head
            store_delta(dy, y_head, y_strides[2], delta_ptr, index, first_query, length, EV, BLOCK_EV)
    for first_key in tl.range(0, keys, BLOCK_K, disable_licm=True):  # what is hoisted would spill
        tl.debug_barrier()  # a thread reads what others wrote: delta, and the sums of dq
        keys_tile(
            batch, kv_head, first_key,
            q_ptr, k_ptr, v_ptr, None, dy_ptr, dq_ptr, dk_ptr, dv_ptr, lse_ptr, None, delta_ptr, sum_ptr,
            q_strides, k_strides, v_strides, None, dy_strides, dq_strides, dk_strides, dv_strides,
            heads, group, length, keys, scale, window, seed, dropout_p, kept_scale,
            E, EV, BLOCK_E, BLOCK_EV, CAUSAL, PRECISION, BLOCK_Q, BLOCK_K, STEP,
        )


def backward(
    arrays: list[RawArray | None], lse: RawArray, log_total: RawArray | None, scalars: tuple, meta: dict,
    out: tuple[RawArray, RawArray, RawArray] | None = None,
) -> tuple[RawArray, RawArray, RawArray]:
    """Returns dq, dk and dv, (B, H, n, e) each, from [q, k, v, mask, y, dy]; or writes them into `out`."""
    q, k, v, mask, y, dy = arrays
    dq, dk, dv = out or (new_heads(a, a.shape[3]) for a in (q, k, v))
    delta = np.empty_like(lse)
    if has_five_products(q, k, v, mask, window=scalars[5]):
        sums = np.empty(q.shape, np.float32, like=q)
        head_arrays = [q, k, v, y, dy, dq, dk, dv]
        launch_tiles(head_backward, None, head_arrays, [lse, delta, sums], scalars, meta)
        return dq, dk, dv
    launch_tiles(queries_backward, "BLOCK_Q", [*arrays, dq], [lse, log_total, delta, None], scalars, meta)
    keys_arrays = [q, k, v, mask, dy, dk, dv]
    launch_tiles(keys_backward, "BLOCK_K", keys_arrays, [lse, log_total, delta], scalars, meta)
    if k.shape[2] == 1:
        dq[...], dk[...] = 0, 0  # without a mask its only tile isn't masked
    return dq, dk, dv


def has_five_products(
    q: RawArray, k: RawArray, v: RawArray, mask: RawArray | None, window: int | None
) -> bool:
    """Returns whether backward is `head_backward`, with a program for each head of keys.

    Its programs must fill the GPU: five products in each wave of them take at most as long as seven of small
    programs, which are spread evenly. Adding dq up in memory moves a byte for each BLOCK_K / 2 operations
    that are saved, so blocks must be large: 128 keys. Each query must see a key, or its dq is never
    stored.
    """
    gpu, programs = chip(), k.shape[0] * k.shape[1]
    filled = 5 * cdiv(programs, gpu.multiprocessors) * gpu.multiprocessors <= 7 * programs
    large = gpu.capability >= 90 and q.dtype.itemsize == 2 and max(q.shape[3], v.shape[3]) <= 64
    seeing = k.shape[2] > 0 and (window is None or q.shape[2] <= k.shape[2])
    return filled and large and seeing and mask is None


def mask_backward(
    arrays: list[RawArray | None], lse: RawArray, log_total: RawArray | None, scalars: tuple, meta: dict
) -> RawArray:
    """Returns the gradient (B, H, L, S) of the float mask."""
    q, k = arrays[:2]
    ds = np.empty((*q.shape[:3], k.shape[2]), np.float32, like=q)
    scratch = [lse, log_total, np.empty_like(lse), ds]
    launch_tiles(queries_backward, "BLOCK_Q", [*arrays, new_heads(q, q.shape[3])], scratch, scalars, meta)
    return ds
