"""Scaled dot-product attention."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...backends.blas import column_sums
from ...device import array_module, device_of, on
from ...ops import ones, where
from ...tensor import Tensor
from .activations import require_float
from .composite import composite
from .dropout import check_probability, dropout_mask
from .softmax import softmax

TILE = 64  # queries at a time in long causal attention on the CPU: what lies right of a tile is not computed


@composite
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(Q K^T / sqrt(E) + mask) V: for each query a mean of the values, weighted by how their keys fit.

    Args:
        query: (..., L, E)
        key: (..., S, E)
        value: (..., S, Ev); the leading dims of all three broadcast.
        attn_mask: broadcasts to (..., L, S): bool, True where a query may look, or what is added to scores.
        dropout_p: drop weights with this probability; it is not asked whether one is training.
        is_causal: query i looks at keys 0 to i; there must be no `attn_mask` beside it.
        scale: instead of 1 / sqrt(E).
        enable_gqa: key and value may have fewer heads (dim -3), each for several heads of the query.

    Returns:
        (..., L, Ev); a query that may look nowhere gets zeros.

    Raises:
        RuntimeError: shapes, dtypes or options don't fit.
    Source: Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762, 3.2.1.
    """
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-1, -2) * scale
    if is_causal:
        attn_mask = ones(scores.shape[-2:], dtype=bool, device=query.device).tril()
    if attn_mask is not None:
        scores = where(attn_mask, scores, -math.inf) if attn_mask.dtype == bool else scores + attn_mask
    nowhere = (scores == -math.inf).all(-1, True)
    weights = where(nowhere, 0, softmax(where(nowhere, 0, scores), -1, auto=True))
    return (weights if dropout_p is None else weights * dropout_p) @ value  # the mask is drawn in the check


@scaled_dot_product_attention.check
def _check(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    q, k, v = query.data._array, key.data._array, value.data._array
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise RuntimeError(
            f"attention: expected query, key and value to be at least 2 dimensional, got {shapes}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(
            f"attention: expected query, key and value of the same dtype, got {q.dtype}, {k.dtype}, {v.dtype}"
        )
    require_float(query, "scaled_dot_product_attention")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise RuntimeError(f"attention: shapes don't fit (L, E), (S, E), (S, Ev): {shapes}")
    batch = _batch(q.shape, k.shape, v.shape, enable_gqa)
    if batch is None:
        raise RuntimeError(
            f"attention: the leading dims can't be broadcast (enable_gqa={enable_gqa}): {shapes}"
        )
    if attn_mask is not None:
        _check_mask(attn_mask, q.dtype, (*batch, q.shape[-2], k.shape[-2]), is_causal)
    check_probability(dropout_p)
    keep = dropout_mask(query, (*batch, q.shape[-2], k.shape[-2]), dropout_p) if dropout_p else None
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    return query, key, value, attn_mask, keep, is_causal, scale, enable_gqa


def _batch(q, k, v, enable_gqa):
    """The leading dims of the scores, or None if they don't fit."""
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
def _attention(q, k, v, mask, keep, is_causal, scale, enable_gqa):
    """With P = softmax(k q^T) over keys and y = P^T v: dv = P g,  dP = v g^T,  dscores = P (dP - sum(dP P)).

    That sum over the keys is the sum of g y over the features, which is shorter. Scores have the shape
    (..., S, L): NumPy finds the maxima of columns faster than those of short rows.
    """
    own_heads = k.shape[-3:-2], v.shape[-3:-2]
    if enable_gqa:
        k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (k, v))
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    tiles = _tiles(q, k, is_causal, keep is None)
    one = len(tiles) == 1 and tiles[0][1] == k.shape[-2]  # one tile sees all keys: nothing is added up
    new = functools.partial(_new, q, batch, np.empty if one else np.zeros)
    bias = None if mask is None else _as_bias(mask, q.dtype)
    y = new(q.shape[-2], v.shape[-1])
    saved = []
    for rows, seen in tiles:
        start = rows.start if is_causal else None
        keep = None if keep is None else _swap(keep)[..., :seen, :]  # there is one tile only
        p = _softmax(_scores(q[..., rows, :], k[..., :seen, :], bias, start, q.dtype.type(scale)))
        np.matmul(_swap(p if keep is None else p * keep), v[..., :seen, :], out=y[..., rows, :])
        saved.append((rows, seen, p))

    def grad(g):
        dq, dk, dv = new(*q.shape[-2:]), new(*k.shape[-2:]), new(*v.shape[-2:])
        along = np.einsum("...ld,...ld->...l", g, y)[..., None, :]
        dmask = None
        for rows, seen, p in saved:
            g_rows = g[..., rows, :]
            _add_product(p if keep is None else p * keep, g_rows, dv[..., :seen, :], one)
            d = np.matmul(v[..., :seen, :], _swap(g_rows))
            if keep is not None:
                d *= keep
            d -= along[..., rows]
            d *= p
            if mask is not None and mask.dtype != bool:
                dmask = _swap(d.copy())
            d *= q.dtype.type(scale)
            np.matmul(_swap(d), k[..., :seen, :], out=dq[..., rows, :])
            _add_product(d, q[..., rows, :], dk[..., :seen, :], one)
        return dq, _sum_heads(dk, own_heads[0]), _sum_heads(dv, own_heads[1]), dmask

    return y, grad


def _swap(a):
    return np.swapaxes(a, -1, -2)


def _new(like, batch, make, length, features):
    """A new (*batch, length, features), with a token's heads side by side: joining them needs no copy."""
    if len(batch) != 2:
        return make((*batch, length, features), like.dtype, like=like)
    return np.swapaxes(make((batch[0], length, batch[1], features), like.dtype, like=like), 1, 2)


def _as_bias(mask, dtype):
    """What is added to the scores: 0 where a bool mask is True, else -inf."""
    bias = np.where(mask, 0, -np.inf).astype(dtype) if mask.dtype == bool else mask.astype(dtype)
    return _swap(bias) if bias.ndim > 1 else bias[..., None]


def _tiles(q, k, is_causal, tiled):
    """(queries, number of keys) of each tile: in causal attention keys after its last query aren't seen."""
    length, keys = q.shape[-2], k.shape[-2]
    if not (length and keys):
        return []
    tiled = tiled and is_causal and length >= 2 * TILE and isinstance(q, np.ndarray)
    step = TILE if tiled else length
    spans = [(i, min(i + step, length)) for i in range(0, length, step)]
    return [(slice(first, last), min(last, keys) if is_causal else keys) for first, last in spans]


def _scores(q, k, bias, start, scale):
    """k q^T scale + bias; in causal attention `start` is the number of the first query."""
    scores = np.matmul(k, _swap(q))
    scores *= scale
    if bias is not None:
        scores += bias
    if start is not None:
        future = scores[..., start:, :]
        future += _triangle(q.shape[-2], q.dtype, device_of(q))[: future.shape[-2]]
    return scores


@functools.lru_cache(maxsize=8)
def _triangle(n, dtype, where):
    """(n, n), -inf below the diagonal, else 0."""
    with on(where):
        return np.tril(array_module(where).full((n, n), -np.inf, dtype), -1)


def _softmax(scores):
    """Over the keys, in place; what is -inf everywhere becomes 0."""
    scores -= np.maximum(np.max(scores, axis=-2, keepdims=True), np.finfo(scores.dtype).min)
    np.exp(scores, out=scores)
    scores /= np.maximum(column_sums(scores), 1)[..., None, :]  # only a column of zeros has a smaller sum
    return scores


def _add_product(x, y, out, only):
    """out += x y, where `out` holds zeros; if it is the only term, out = x y."""
    if only:
        np.matmul(x, y, out=out)
    else:
        out += np.matmul(x, y)


def _sum_heads(d, own):
    """The gradient of a head that was repeated is the sum of its copies'."""
    if own in ((), d.shape[-3:-2]):
        return d
    return d.reshape(*d.shape[:-3], *own, d.shape[-3] // own[0], *d.shape[-2:]).sum(-3)
