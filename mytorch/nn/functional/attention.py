"""Scaled dot-product attention."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...backends.blas import add_product, column_sums, dots, product
from ...backends.device import array_module, device_of, is_on_host, on
from ...core.tensor import Tensor, from_raw, raw_of
from ...ops import ones, where
from .composite import composite, require_float
from .dropout import Draw, check_probability, scale_of_kept
from .softmax import softmax

TILE = 64  # queries per tile of long causal attention on the CPU; keys right of a tile are skipped


def _heads_inside(y: Tensor) -> Tensor:
    """Returns (..., heads, length, features) in memory (..., length, heads, features), as all variants do."""
    return y if y.ndim < 3 else y.transpose(-3, -2).contiguous().transpose(-3, -2)


@composite(order=_heads_inside)
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    sliding_window: int | None = None, soft_cap: float | None = None,
) -> Tensor:
    """Returns softmax(Q K^T / sqrt(E) + mask) V: for each query a weighted mean of the values.

    Args:
        query: (..., L, E)
        key: (..., S, E)
        value: (..., S, Ev); the leading dims of all three broadcast.
        attn_mask: broadcasts to (..., L, S): bool, True where a query may attend, or added to the scores.
        dropout_p: probability to drop a weight, in training and evaluation.
        is_causal: query i attends to keys 0 to i; excludes `attn_mask`.
        scale: instead of 1 / sqrt(E).
        enable_gqa: key and value may have fewer heads (dim -3), each for several heads of the query.
        sliding_window: with `is_causal`, query i attends to this many keys, i - sliding_window + 1 to i.
            (Not in PyTorch, where it takes a mask.)
        soft_cap: the scores, before the mask, are `F.soft_cap(scores, soft_cap)`. There is no kernel for it.
            (Not in PyTorch.)

    Returns:
        (..., L, Ev); zeros for a query that may attend to no key.

    Raises:
        RuntimeError: shapes, dtypes or options do not match.
    Source: Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762, 3.2.1.

    >>> q = mytorch.randn(1, 2, 5, 4)
    >>> F.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    Size([1, 2, 5, 4])
    """
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-1, -2) * scale
    if soft_cap is not None:
        scores = soft_cap * (scores / soft_cap).tanh()
    if is_causal:
        seen = ones(scores.shape[-2:], dtype=bool, device=query.device)
        attn_mask = seen.tril() if sliding_window is None else seen.tril().triu(1 - sliding_window)
    if attn_mask is not None:
        scores = where(attn_mask, scores, -math.inf) if attn_mask.dtype == bool else scores + attn_mask
    empty = (scores == -math.inf).all(-1, True)
    weights = where(empty, 0, softmax(where(empty, 0, scores), -1, auto=True))
    if dropout_p is not None:
        draw, p = dropout_p  # see `check_options`
        weights = weights * from_raw(draw.kept(raw_of(weights), p)) * scale_of_kept(p)
    return weights @ value


@scaled_dot_product_attention.check
def _check(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, sliding_window, soft_cap):
    q, k, v = raw_of(query), raw_of(key), raw_of(value)
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise RuntimeError(
            f"attention: expected query, key and value to be at least 2 dimensional, got {shapes}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(
            f"attention: expected query, key and value of the same dtype, got {q.dtype}, {k.dtype}, {v.dtype}"
        )
    require_float(query.dtype, "scaled_dot_product_attention")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise RuntimeError(f"attention: shapes do not match (L, E), (S, E), (S, Ev): {shapes}")
    batch = batch_shape(q.shape, k.shape, v.shape, enable_gqa)
    if batch is None:
        raise RuntimeError(
            f"attention: the leading dims can't be broadcast (enable_gqa={enable_gqa}): {shapes}"
        )
    if soft_cap is not None and not soft_cap > 0:
        raise RuntimeError(f"attention: soft_cap must be positive, got {soft_cap}")
    scores = (*batch, q.shape[-2], k.shape[-2])
    options = attn_mask, dropout_p, is_causal, scale, sliding_window
    dropout, scale = check_options(query, scores, q.shape[-1], *options)
    return query, key, value, attn_mask, dropout, is_causal, scale, enable_gqa, sliding_window, soft_cap


def check_options(query, scores, features, attn_mask, dropout_p, is_causal, scale, sliding_window):
    """Returns the variants' dropout, (Draw, probability) or None, and scale; raises for invalid options."""
    if attn_mask is not None:
        _check_mask(attn_mask, query.dtype, scores, is_causal)
    if sliding_window is not None and not (is_causal and sliding_window > 0):
        raise RuntimeError(
            "attention: sliding_window needs is_causal=True and must be positive, got "
            f"sliding_window={sliding_window}, is_causal={is_causal}"
        )
    if dropout_p:
        check_probability(dropout_p)
    return (Draw(query.device), dropout_p) if dropout_p else None, default_scale(scale, features)


def default_scale(scale, features):
    if scale is not None:
        return scale
    return 1 / math.sqrt(features) if features else 1.0


def batch_shape(q, k, v, enable_gqa):
    """Returns the leading dims of the scores, None if the inputs' cannot be broadcast."""
    if q[:-2] == k[:-2] == v[:-2]:
        return q[:-2]
    if enable_gqa:
        if min(len(q), len(k), len(v)) < 3 or not k[-3] or not v[-3] or q[-3] % k[-3] or q[-3] % v[-3]:
            return None
        k, v = (*k[:-3], *q[-3:]), (*v[:-3], *q[-3:])
    try:
        return np.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    except ValueError:
        return None


def _check_mask(mask, dtype, scores, is_causal):
    if is_causal:
        raise RuntimeError("attention: explicit attn_mask should not be set when is_causal=True")
    if mask.dtype not in (bool, np.float32, dtype):
        raise RuntimeError(
            f"attention: expected attn_mask to be bool or float32 or of the query's {dtype}, got {mask.dtype}"
        )
    shape = mask.data.shape
    if len(shape) > len(scores) or any(
        m not in (1, n) for m, n in zip(shape[::-1], scores[::-1], strict=False)
    ):
        raise RuntimeError(
            f"attention: attn_mask of shape {shape} can't be broadcast to the scores' {scores}"
        )


@scaled_dot_product_attention.manual
def attention_manual(q, k, v, mask, dropout, is_causal, scale, enable_gqa, window, soft_cap=None):
    """With P = softmax(k q^T) over keys and y = P^T v: dv = P g,  dP = v g^T,  dscores = P (dP - sum(dP P)).

    The sum is not computed as that of g y over the features: rounded otherwise, it would leave a gradient
    where a query sees one key. Scores have the shape (..., S, L): NumPy finds the maxima of columns faster
    than those of short rows.
    """
    kv_heads = k.shape[-3:-2], v.shape[-3:-2]
    if enable_gqa:
        k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (k, v))
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    tiles = _tiles(q, k, is_causal, window, dropout is None)
    one = len(tiles) == 1 and tiles[0][1] == slice(0, k.shape[-2])  # of all keys: nothing to accumulate
    new = functools.partial(_new, q, batch, np.empty if one else np.zeros)
    bias = None if mask is None else _as_bias(mask, q.dtype)
    y = new(q.shape[-2], v.shape[-1])
    saved, keep, t = [], None, None
    for rows, seen in tiles:
        scores = product(k[..., seen, :], _swap(q[..., rows, :]))
        scores *= q.dtype.type(scale)
        if soft_cap is not None:
            t = np.tanh(scores / q.dtype.type(soft_cap))
            scores = t * q.dtype.type(soft_cap)
        if bias is not None:
            scores += bias
        if is_causal:
            _hide(scores, rows.start - seen.start, window)
        p = _softmax(scores)
        if dropout is not None:  # a single tile, not always of all keys
            shape = (*batch, q.shape[-2], k.shape[-2])
            keep = _swap(_kept_weights(dropout, np.empty(shape, q.dtype, like=q)))[..., seen, :]
        add_product(_swap(p if keep is None else p * keep), v[..., seen, :], y[..., rows, :], 0)
        saved.append((rows, seen, p, t))

    def vjp(g):
        dq, dk, dv = new(*q.shape[-2:]), new(*k.shape[-2:]), new(*v.shape[-2:])
        dmask = None
        for rows, seen, p, t in saved:
            g_rows = g[..., rows, :]
            add_product(p if keep is None else p * keep, g_rows, dv[..., seen, :], not one)
            d = product(v[..., seen, :], _swap(g_rows))
            if keep is not None:
                d *= keep
            d -= dots("...sl->...l", d, p)[..., None, :]
            d *= p
            if mask is not None and mask.dtype != bool:
                dmask = _swap(d.copy())
            if t is not None:
                d *= 1 - t * t
            d *= q.dtype.type(scale)
            add_product(_swap(d), k[..., seen, :], dq[..., rows, :], 0)
            add_product(d, q[..., rows, :], dk[..., seen, :], not one)
        return dq, _sum_heads(dk, kv_heads[0]), _sum_heads(dv, kv_heads[1]), dmask

    return y, vjp


def _kept_weights(dropout, weights):
    """Returns 0 with the probability of dropout for each weight, else 1 / (1 - p)."""
    draw, p = dropout
    return draw.mask(weights, p) * weights.dtype.type(scale_of_kept(p))


def _swap(a):
    return np.swapaxes(a, -1, -2)


def _new(like, batch, make, length, features):
    """Returns a new (*batch, length, features), a token's heads contiguous: joining them needs no copy."""
    if not batch:
        return make((length, features), like.dtype, like=like)
    *outer, heads = batch
    return np.swapaxes(make((*outer, length, heads, features), like.dtype, like=like), -3, -2)


def _as_bias(mask, dtype):
    """Returns the values added to the scores: for a bool mask 0 where True, else -inf."""
    bias = np.where(mask, 0, -np.inf).astype(dtype) if mask.dtype == bool else mask.astype(dtype)
    return _swap(bias) if bias.ndim > 1 else bias[..., None]


def _tiles(q, k, is_causal, window, tiled):
    """Returns the (queries, keys) of each tile; in causal attention without keys that no query sees."""
    length, keys = q.shape[-2], k.shape[-2]
    if not (length and keys):
        return []
    if not is_causal:
        return [(slice(0, length), slice(0, keys))]
    step = TILE if tiled and length >= 2 * TILE and is_on_host(q) else length
    tiles = []
    for first in range(0, length, step):
        last = min(first + step, length)
        oldest = 0 if window is None else max(0, first - window + 1)
        if oldest < keys:
            tiles.append((slice(first, last), slice(oldest, min(last, keys))))
    return tiles


def _hide(scores, start, window):
    """Sets to -inf the scores of query i for all keys but start + i - window + 1 to start + i."""
    hidden = _triangle(scores.shape[-1], scores.dtype, device_of(scores).base)
    future = scores[..., start:, :]
    future += hidden[: future.shape[-2]]
    if window is not None:
        first = max(0, window - 1 - start)  # the first query that does not see all older keys
        past = scores[..., : max(0, scores.shape[-1] - first), first:]
        past += _swap(hidden)[: past.shape[-2], : past.shape[-1]]


@functools.lru_cache(maxsize=8)
def _triangle(n, dtype, device):
    """Returns (n, n), -inf below the diagonal, else 0."""
    with on(device):
        return np.tril(array_module(device).full((n, n), -np.inf, dtype), -1)


def _softmax(scores):
    """Softmax over the keys, in place; 0 for a column of -inf."""
    scores -= np.maximum(np.max(scores, axis=-2, keepdims=True), np.finfo(scores.dtype).min)
    np.exp(scores, out=scores)
    scores /= np.maximum(column_sums(scores), 1)[..., None, :]  # only a column of zeros has a smaller sum
    return scores


def _sum_heads(d, heads):
    """Returns the gradient before heads were repeated: the sum over the copies of each."""
    if heads in ((), d.shape[-3:-2]):
        return d
    return d.reshape(*d.shape[:-3], *heads, d.shape[-3] // heads[0], *d.shape[-2:]).sum(-3)
