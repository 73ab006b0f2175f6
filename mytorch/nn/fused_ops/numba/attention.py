"""
Attention in tiles of queries: the scores of a tile live in a core's cache and are never kept.

    S = scale Q K^T + bias,   P = exp(S - max) / sum,   y = P V
    dV = P^T g,   dS = P (g V^T - sum(g y)),   dQ = scale dS K,   dK = scale dS^T Q

Forward keeps the maximum of each row of S and 1 / its sum; backward makes P again from them. A tile is
multiplied only with the keys that one of its queries may see: in causal attention none that are newer, with
a sliding window none that are too old. The products are OpenBLAS's, which reads strided heads where they lie;
it is fastest if no second operand is transposed, so S lies in memory as (keys, queries).

Source: Dao et al., "FlashAttention", 2022, https://arxiv.org/abs/2205.14135, algorithms 1 and 4. Here a tile
sees whole rows of S, so that nothing has to be rescaled.
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
    is_available,
    set_blas_threads,
)
from ....backends.jit import kernel, prange
from ....core.lazy_grad import LazyGrad
from ....core.unbroadcast import unbroadcast
from ...functional.attention import batch_shape, scaled_dot_product_attention
from ...functional.composite import Unsupported
from ...functional.dropout import scale_of_kept
from ...functional.self_attention import packed, self_attention
from .approximations import INF
from .attention_parts import (
    below,
    fill_with_zeros,
    gradients_of_scores,
    inner_products,
    kept_weight,
    matrix_of,
    multiply,
    places,
    rows_contiguous,
    rows_from,
    scale_rows,
    scores_of,
    seen,
    softmax,
    transpose,
)
from .memory import aligned, floats
from .philox import halves_of

TILE = 32  # queries; in larger tiles more scores are computed that nobody may see
PIECES = 8  # with fewer heads than this, backward splits the queries of a head
GRAIN = 512  # queries of all heads; with fewer, one thread is done sooner


@kernel(grain=GRAIN)
def _forward(q, k, v, bias, y, maxima, factors, sizes, mode, dropout):
    """Items are pairs of a head's tiles, the n-th and the n-th last: of equal work in causal attention."""
    batches, heads, kv_heads, queries, keys, features, value_features = sizes
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    tiles = (queries + TILE - 1) // TILE
    pairs = (tiles + 1) // 2
    for item in prange(batches * heads * pairs):
        batch, head, pair = item // pairs // heads, item // pairs % heads, item % pairs
        kv_head = head * kv_heads // heads
        # Made before the loop, they live till its end: an address doesn't keep an array alive.
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
                        s[j, i] *= kept_weight(dropout, row, keys, oldest + j)
            v_seen = rows_from(v, batch, kv_head, oldest)
            p = matrix_of(s)
            multiply(TRANSPOSED, rows, value_features, columns, ONE, p, v_seen, ZERO, y_tile)
            for i in range(rows):
                factor[i] = ZERO if factor[i] == ZERO else ONE / factor[i]
            scale_rows(y_tile, value_features, factor)
    set_blas_threads(before)


@kernel(grain=GRAIN)
def _backward(q, k, v, bias, y, maxima, factors, sizes, mode, dropout, g, dq, dk, dv, dbias, pieces, steps):
    """Items are heads of the keys, or pieces of them, each with a dk and a dv of its own."""
    batches, heads, kv_heads, queries, keys, features, value_features = sizes
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    tiles, group = (queries + TILE - 1) // TILE, heads // max(1, kv_heads)
    for item in prange(batches * kv_heads * pieces):
        batch, kv_head, piece = item // pieces // kv_heads, item // pieces % kv_heads, item % pieces
        own_dk, own_dv = rows_from(dk, batch, kv_head, 0), rows_from(dv, batch, kv_head, 0)
        own_dk, own_dv = below(own_dk, piece * steps[0]), below(own_dv, piece * steps[1])
        fill_with_zeros(own_dk, keys, features)
        fill_with_zeros(own_dv, keys, value_features)
        memory = aligned(max(features, value_features) * TILE)
        scores, gradients = aligned(keys * TILE), aligned(keys * TILE)
        along = np.empty(TILE, np.float32)
        for unit in range(piece, group * tiles, pieces):
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
            dk_seen, dv_seen = below(own_dk, oldest * own_dk[1]), below(own_dv, oldest * own_dv[1])
            g_tile, y_tile = rows_from(g, batch, head, first), rows_from(y, batch, head, first)
            bias_tile = rows_from(bias, batch, head, first)
            scores_of(q_tile, k_seen, bias_tile, features, first, oldest, mode, memory, p)
            gt = memory[: value_features * rows].reshape(value_features, rows)
            transpose(g_tile, gt)
            gt_place, p_place, d_place = matrix_of(gt), matrix_of(p), matrix_of(d)
            multiply(PLAIN, columns, rows, value_features, ONE, v_seen, gt_place, ZERO, d_place)
            inner_products(g_tile, y_tile, value_features, along[:rows])
            row = (batch * heads + head) * queries + first
            largest, factor = maxima[batch, head, first:last], factors[batch, head, first:last]
            gradients_of_scores(p, d, along, largest, factor, mode, dropout, row, keys, first, oldest)
            if dbias:
                for i in range(rows):
                    out = floats(dbias + 4 * ((row + i) * keys + oldest), columns)
                    for j in range(columns):
                        out[j] = d[j, i]
            multiply(PLAIN, columns, value_features, rows, ONE, p_place, g_tile, ONE, dv_seen)
            multiply(TRANSPOSED, rows, features, columns, mode[0], d_place, k_seen, ZERO, dq_tile)
            multiply(PLAIN, columns, features, rows, mode[0], d_place, q_tile, ONE, dk_seen)
    set_blas_threads(before)


@scaled_dot_product_attention.fused("cpu")
def attention(q, k, v, mask, dropout, is_causal, scale, enable_gqa, window, position=0):
    """As `scaled_dot_product_attention`; query i has the place `position` + i among the keys."""
    _require_support(q, k, v, enable_gqa)
    lead = batch_shape(q.shape, k.shape, v.shape, enable_gqa)
    kv_lead = (*lead[:-1], k.shape[-3]) if enable_gqa else lead
    q, k, v = _four_dims(q, lead), _four_dims(k, kv_lead), _four_dims(v, kv_lead)
    batches, heads, queries, features = q.shape
    kv_heads, keys, value_features = v.shape[1:]
    bias = None if mask is None else _as_bias(mask, (*lead, queries, keys))
    y = _new(batches, queries, heads, value_features)
    maxima, factors = np.empty((2, batches, heads, queries), np.float32)
    sizes = (batches, heads, kv_heads, queries, keys, features, value_features)
    mode = (np.float32(scale), bool(is_causal), window or 0, position)
    draw = _draw_numbers(dropout)

    def inputs():
        bias_place = [(0, 0, 0, 0)] if bias is None else places(bias)
        return *places(q, k, v), *bias_place, *places(y), maxima, factors, sizes, mode, draw

    def gradients(g, dbias=0):
        g = _four_dims(g, lead)
        pieces = _pieces(batches * kv_heads, heads // max(1, kv_heads) * -(-queries // TILE))
        dq, dk, dv = _new_gradients(q, k, v, pieces)
        steps = (dk.strides[0], dv.strides[0])
        _backward(*inputs(), *places(g, dq, dk[0], dv[0]), dbias, pieces, steps)
        return dq, *(d[0] if pieces == 1 else d.sum(0) for d in (dk, dv))

    def grad(g):
        dq, dk, dv = gradients(g)
        parts = _like_input(dq, lead), _like_input(dk, kv_lead), _like_input(dv, kv_lead)
        if mask is None or mask.dtype == bool:
            return parts

        def mask_gradient(out, beta):  # rarely wanted: then backward runs twice
            d = np.zeros((*lead, queries, keys), np.float32)
            gradients(g, address_of(d))
            np.add(unbroadcast(d, mask.shape), out if beta else 0, out=out)

        return *parts, LazyGrad(mask.shape, mask, mask_gradient)

    _forward(*inputs())
    return _like_input(y, lead), grad


def _require_support(q, k, v, enable_gqa):
    if q.dtype != np.float32:
        raise Unsupported(f"the kernel for the CPU computes in float32, not {q.dtype}")
    if enable_gqa and k.shape[-3] != v.shape[-3]:
        raise Unsupported(
            f"the kernel's keys and values have as many heads, got {k.shape[-3]} and {v.shape[-3]}"
        )
    if not is_available():
        raise Unsupported("the kernel for the CPU needs a NumPy that multiplies with OpenBLAS")


def _draw_numbers(dropout):
    """The halves of the seed, the probability, and what is kept is multiplied by."""
    if dropout is None:
        return np.uint32(0), np.uint32(0), ZERO, ONE
    draw, p = dropout
    return *halves_of(draw.seed), np.float32(p), np.float32(scale_of_kept(p))


def _four_dims(a, lead):
    """(..., n, features) as (batches, heads, n, features), broadcast; a copy if BLAS can't read its rows."""
    a, (n, features) = rows_contiguous(a), a.shape[-2:]
    if a.shape[:-2] != lead:
        a = np.broadcast_to(a, (*lead, n, features))
    return a if a.ndim == 4 else a.reshape(math.prod(lead[:-1]), math.prod(lead[-1:]), n, features)


def _as_bias(mask, shape):
    """What is added to the scores, in four dims: 0 where a bool mask is True, else -inf."""
    bias = np.where(mask, ZERO, -INF) if mask.dtype == bool else mask.astype(np.float32, copy=False)
    bias = np.broadcast_to(bias, (*bias.shape[:-1], shape[-1]))
    return _four_dims(np.broadcast_to(bias if bias.strides[-1] == 4 else bias.copy(), shape), shape[:-2])


def _like_input(d, lead):
    return d if len(lead) == 2 else d.reshape(*lead, *d.shape[2:])


def _new(batches, n, heads, features):
    """A new (batches, heads, n, features), with a token's heads side by side: joining them needs no copy."""
    return np.empty((batches, n, heads, features), np.float32).swapaxes(1, 2)


def _pieces(heads, units):
    """How many pieces a head's backward falls into; each adds up gradients of keys and values of its own."""
    return 1 if heads >= PIECES or not heads else max(1, min(units, -(-PIECES // heads)))


def _new_gradients(q, k, v, pieces):
    """Memory for dq, and for dk and dv in pieces. Where q, k and v are the thirds of one projection, the
    gradients are, too: then nothing has to be joined."""
    batches, heads, n, features = q.shape
    width = 4 * heads * features
    if (
        pieces == 1
        and q.shape == k.shape == v.shape
        and q.strides == k.strides == v.strides == (3 * width * n, 4 * features, 3 * width, 4)
        and address_of(k) - address_of(q) == address_of(v) - address_of(k) == width
    ):
        thirds = np.empty((batches, n, 3, heads, features), np.float32)
        dq, dk, dv = (thirds[:, :, i].swapaxes(1, 2) for i in range(3))
        return dq, dk[None], dv[None]
    dk, dv = (_new(pieces * batches, a.shape[2], a.shape[1], a.shape[3]) for a in (k, v))
    dk, dv = (d.reshape(pieces, batches, *d.shape[1:]) for d in (dk, dv))
    return _new(batches, n, heads, features), dk, dv


self_attention.fused("cpu")(packed(attention))
