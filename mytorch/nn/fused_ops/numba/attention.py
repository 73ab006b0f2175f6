"""
Attention in tiles of queries: the scores of a tile stay in a core's cache and are never stored.

    S = scale Q K^T + bias,   P = exp(S - max) / sum,   y = P V
    dP = dy V^T,   dS = P (dP - sum(P dP)),   dQ = scale dS K,   dK = scale dS^T Q,   dV = P^T dy

Forward saves the maximum of each row of S and 1 / its sum of exponentials; backward recomputes P from them.
A tile is multiplied only with keys that one of its queries attends to: in causal attention no later ones,
with a sliding window none before it. The products are OpenBLAS's, which reads strided heads without a copy;
it is fastest if no second operand is transposed, so S is stored as (keys, queries).

Source: Dao et al., "FlashAttention", 2022, https://arxiv.org/abs/2205.14135, algorithms 1 and 4. Here a tile
has whole rows of S, so that nothing is rescaled.
"""

from __future__ import annotations

import math

import numpy as np

from ....backends.address import address_of
from ....backends.gemm import (
    ONE,
    PLAIN,
    TRANSPOSED,
    ZERO,
    get_blas_threads,
    set_blas_threads,
)
from ....backends.jit import kernel, prange
from ....core.grad_accumulator import LazyGrad
from ....core.unbroadcast import unbroadcast
from ...functional.attention import batch_shape, scaled_dot_product_attention
from ...functional.composite import Unsupported
from ...functional.dropout import scale_of_kept
from ...functional.self_attention import packed, self_attention
from .approximations import INF
from .attention_parts import (
    addresses,
    below,
    dropout_factor,
    fill_with_zeros,
    matrix_of,
    multiply,
    rows_contiguous,
    rows_from,
    scale_rows,
    scores_backward,
    scores_of,
    seen,
    softmax,
    transpose,
)
from .memory import aligned, floats, require_openblas
from .moments import require_single
from .philox import halves_of

TILE = 32  # queries; larger tiles compute more scores that are masked
SPLITS = 8  # with fewer heads than this, backward splits the queries of a head
GRAIN = 512  # queries of all heads; with fewer, one thread is faster


@kernel(grain=GRAIN)
def _forward(q, k, v, bias, maxima, factors, sizes, mode, dropout, y):
    """Items are pairs of a head's tiles, the n-th and the n-th last, which balances causal attention."""
    batches, heads, kv_heads, queries, keys, features, value_features = sizes
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    tiles = (queries + TILE - 1) // TILE
    pairs = (tiles + 1) // 2
    for item in prange(batches * heads * pairs):
        batch, head, pair = item // pairs // heads, item // pairs % heads, item % pairs
        kv_head = head * kv_heads // heads
        # Allocated before the loop and alive until its end: an address doesn't keep an array alive.
        memory, scores = aligned(features * TILE), aligned(keys * TILE)
        for tile in range(pair, tiles - pair, max(1, tiles - 1 - 2 * pair)):
            first, last = tile * TILE, min(queries, tile * TILE + TILE)
            oldest, end = seen(first, last, keys, mode)
            rows, columns = last - first, end - oldest
            y_tile = rows_from(y, batch, head, first)
            if columns <= 0:
                fill_with_zeros(y_tile, rows, value_features)
                continue
            s = scores[: columns * rows].reshape(columns, rows)
            q_tile, k_seen = rows_from(q, batch, head, first), rows_from(k, batch, kv_head, oldest)
            bias_tile = rows_from(bias, batch, head, first)
            scores_of(q_tile, k_seen, bias_tile, features, first, oldest, mode, memory, s)
            factor = factors[batch, head, first:last]
            softmax(s, maxima[batch, head, first:last], factor)
            if dropout[2] > ZERO:
                for j in range(columns):
                    for i in range(rows):
                        row = (batch * heads + head) * queries + first + i
                        s[j, i] *= dropout_factor(dropout, row, keys, oldest + j)
            v_seen = rows_from(v, batch, kv_head, oldest)
            p = matrix_of(s)
            multiply(TRANSPOSED, rows, value_features, columns, ONE, p, v_seen, ZERO, y_tile)
            for i in range(rows):
                factor[i] = ZERO if factor[i] == ZERO else ONE / factor[i]
            scale_rows(y_tile, value_features, factor)
    set_blas_threads(before)


@kernel(grain=GRAIN)
def _backward(q, k, v, bias, maxima, factors, sizes, mode, dropout, dy, dq, dk, dv, dbias, splits, steps):
    """Items are heads of the keys, or splits of them, each with its own partial dk and dv."""
    batches, heads, kv_heads, queries, keys, features, value_features = sizes
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    tiles, group = (queries + TILE - 1) // TILE, heads // max(1, kv_heads)
    for item in prange(batches * kv_heads * splits):
        batch, kv_head, split = item // splits // kv_heads, item // splits % kv_heads, item % splits
        dk_head, dv_head = rows_from(dk, batch, kv_head, 0), rows_from(dv, batch, kv_head, 0)
        dk_head, dv_head = below(dk_head, split * steps[0]), below(dv_head, split * steps[1])
        fill_with_zeros(dk_head, keys, features)
        fill_with_zeros(dv_head, keys, value_features)
        memory = aligned(max(features, value_features) * TILE)
        scores, gradients = aligned(keys * TILE), aligned(keys * TILE)
        delta = np.empty(TILE, np.float32)
        for unit in range(split, group * tiles, splits):
            head, first = kv_head * group + unit // tiles, unit % tiles * TILE
            last = min(queries, first + TILE)
            oldest, end = seen(first, last, keys, mode)
            rows, columns = last - first, end - oldest
            q_tile, dq_tile = rows_from(q, batch, head, first), rows_from(dq, batch, head, first)
            if columns <= 0:
                fill_with_zeros(dq_tile, rows, features)
                continue
            p = scores[: columns * rows].reshape(columns, rows)
            d = gradients[: columns * rows].reshape(columns, rows)
            k_seen, v_seen = rows_from(k, batch, kv_head, oldest), rows_from(v, batch, kv_head, oldest)
            dk_seen, dv_seen = below(dk_head, oldest * dk_head[1]), below(dv_head, oldest * dv_head[1])
            dy_tile, bias_tile = rows_from(dy, batch, head, first), rows_from(bias, batch, head, first)
            scores_of(q_tile, k_seen, bias_tile, features, first, oldest, mode, memory, p)
            dyt = memory[: value_features * rows].reshape(value_features, rows)
            transpose(dy_tile, dyt)
            dyt_matrix, p_matrix, d_matrix = matrix_of(dyt), matrix_of(p), matrix_of(d)
            multiply(PLAIN, columns, rows, value_features, ONE, v_seen, dyt_matrix, ZERO, d_matrix)
            row = (batch * heads + head) * queries + first
            largest, factor = maxima[batch, head, first:last], factors[batch, head, first:last]
            scores_backward(p, d, delta, largest, factor, mode, dropout, row, keys, first, oldest)
            if dbias:
                for i in range(rows):
                    out = floats(dbias + 4 * ((row + i) * keys + oldest), columns)
                    for j in range(columns):
                        out[j] = d[j, i]
            multiply(PLAIN, columns, value_features, rows, ONE, p_matrix, dy_tile, ONE, dv_seen)
            multiply(TRANSPOSED, rows, features, columns, mode[0], d_matrix, k_seen, ZERO, dq_tile)
            multiply(PLAIN, columns, features, rows, mode[0], d_matrix, q_tile, ONE, dk_seen)
    set_blas_threads(before)


@scaled_dot_product_attention.fused("cpu")
def attention(q, k, v, mask, dropout, is_causal, scale, enable_gqa, window, soft_cap=None, position=0):
    """Scaled dot product attention; query i has the position `position` + i among the keys."""
    _require_support(q, k, v, enable_gqa, soft_cap)
    lead = batch_shape(q.shape, k.shape, v.shape, enable_gqa)
    kv_lead = (*lead[:-1], k.shape[-3]) if enable_gqa else lead
    q, k, v = _four_dims(q, lead), _four_dims(k, kv_lead), _four_dims(v, kv_lead)
    batches, heads, queries, features = q.shape
    kv_heads, keys, value_features = v.shape[1:]
    bias = None if mask is None else _as_bias(mask, (*lead, queries, keys))
    y = _new(q, batches, queries, heads, value_features)
    maxima, factors = np.empty((2, batches, heads, queries), np.float32, like=q)
    sizes = (batches, heads, kv_heads, queries, keys, features, value_features)
    mode = (np.float32(scale), bool(is_causal), window or 0, position)
    draw = _dropout_scalars(dropout)

    def inputs():
        bias_address = [(0, 0, 0, 0)] if bias is None else addresses(bias)
        return *addresses(q, k, v), *bias_address, maxima, factors, sizes, mode, draw

    def gradients(dy, out=None, dbias=0):
        dy = _four_dims(dy, lead)
        dq, *dkv = out or _new_gradients(q, k, v)
        splits = _splits(batches * kv_heads, heads // max(1, kv_heads) * -(-queries // TILE))
        parts = [d[None] if splits == 1 else np.empty((splits, *d.shape), d.dtype, like=d) for d in dkv]
        steps = tuple([part.strides[0] for part in parts])
        _backward(*inputs(), *addresses(dy, dq, *[part[0] for part in parts]), dbias, splits, steps)
        if splits > 1:
            for part, d in zip(parts, dkv, strict=True):
                np.sum(part, axis=0, out=d)
        return dq, *dkv

    def vjp(dy, out=None):
        """Writes the gradients of q, k and v to the arrays `out`, of four dims, if there are any."""
        dq, dk, dv = gradients(dy, out)
        found = _like_input(dq, lead), _like_input(dk, kv_lead), _like_input(dv, kv_lead)
        if mask is None or mask.dtype == bool:
            return found

        def add_mask_gradient(out, beta):  # rarely needed: backward runs a second time
            d = np.zeros((*lead, queries, keys), np.float32)
            gradients(dy, dbias=address_of(d))
            np.add(unbroadcast(d, mask.shape), out if beta else 0, out=out)

        return *found, LazyGrad(mask.shape, mask, add_mask_gradient)

    _forward(*inputs(), *addresses(y))
    return _like_input(y, lead), vjp


def _require_support(q, k, v, enable_gqa, soft_cap):
    require_single(q)
    if soft_cap is not None:
        raise Unsupported("the kernel has no soft cap")
    if enable_gqa and k.shape[-3] != v.shape[-3]:
        raise Unsupported(
            f"the kernel's keys and values have the same number of heads, got {k.shape[-3]} and {v.shape[-3]}"
        )
    require_openblas()


def _dropout_scalars(dropout):
    """Returns the halves of the seed, the probability, and the scale of what isn't dropped."""
    if dropout is None:
        return np.uint32(0), np.uint32(0), ZERO, ONE
    draw, p = dropout
    return *halves_of(draw.seed), np.float32(p), np.float32(scale_of_kept(p))


def _four_dims(a, lead):
    """Returns (..., n, features) as (batches, heads, n, features), broadcast, its rows readable by BLAS."""
    a, (n, features) = rows_contiguous(a), a.shape[-2:]
    if a.shape[:-2] != lead:
        a = np.broadcast_to(a, (*lead, n, features))
    return a if a.ndim == 4 else a.reshape(math.prod(lead[:-1]), math.prod(lead[-1:]), n, features)


def _as_bias(mask, shape):
    """Returns the mask as a float mask of four dims: 0 where a bool mask is True, else -inf."""
    bias = np.where(mask, ZERO, -INF) if mask.dtype == bool else mask.astype(np.float32, copy=False)
    bias = np.broadcast_to(bias, (*bias.shape[:-1], shape[-1]))
    return _four_dims(np.broadcast_to(bias if bias.strides[-1] == 4 else bias.copy(), shape), shape[:-2])


def _like_input(d, lead):
    return d if len(lead) == 2 else d.reshape(*lead, *d.shape[2:])


def _new(like, batches, n, heads, features):
    """Returns a new (batches, heads, n, features), a token's heads adjacent: joining them needs no copy."""
    return np.empty((batches, n, heads, features), np.float32, like=like).swapaxes(1, 2)


def _splits(heads, units):
    """Returns the number of splits of a head's backward, each with its own partial dk and dv."""
    return 1 if heads >= SPLITS or not heads else max(1, min(units, -(-SPLITS // heads)))


def _new_gradients(q, k, v):
    """Returns arrays for dq, dk and dv. If q, k and v are the thirds of one projection, so are the gradients,
    which then need no copy to be joined."""
    batches, heads, n, features = q.shape
    width = 4 * heads * features
    if (
        q.shape == k.shape == v.shape
        and q.strides == k.strides == v.strides == (3 * width * n, 4 * features, 3 * width, 4)
        and address_of(k) - address_of(q) == address_of(v) - address_of(k) == width
    ):
        thirds = np.empty((batches, n, 3, heads, features), np.float32, like=q)
        return [thirds[:, :, i].swapaxes(1, 2) for i in range(3)]
    return [_new(x, batches, x.shape[2], x.shape[1], x.shape[3]) for x in (q, k, v)]


self_attention.fused("cpu")(packed(attention, writes=True))
