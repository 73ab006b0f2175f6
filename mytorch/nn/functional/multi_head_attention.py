"""Multi-head attention: projections, heads, masks and `scaled_dot_product_attention`."""

from __future__ import annotations

import math

from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor
from ...ops import cat, chunk, flatten, matmul, mean, permute, reshape, unflatten, where, zeros
from .attention import scaled_dot_product_attention
from .dropout import dropout
from .linear import linear
from .padding import pad
from .softmax import softmax


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None,
    add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None,
    training: bool = True, key_padding_mask: Tensor | None = None, need_weights: bool = True,
    attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Returns W_o concat(head_1, …, head_h) + b_o with head_i = attention(W_q,i Q, W_k,i K, W_v,i V).

    Args:
        query: (L, N, E); key, value: (S, N, …); all three without N for one sequence.
        embed_dim_to_check: E.
        num_heads: h, of E / h features each.
        in_proj_weight, in_proj_bias: W_q, W_k, W_v stacked, (3 E, E); their biases, (3 E,).
        bias_k, bias_v: (1, 1, E), one more key and value.
        add_zero_attn: one more key and value of zeros.
        dropout_p: probability to drop a weight, if `training`.
        key_padding_mask: (N, S), bool, True for keys that are ignored; or values added to the scores.
        need_weights: return the weights, too; False is faster.
        attn_mask: (L, S) or (N h, L, S), True where a query may not attend; or values added to the scores.
        use_separate_proj_weight: take `q_proj_weight`, `k_proj_weight` and `v_proj_weight`.
        static_k, static_v: (N h, S, E / h), instead of the projected ones.
        average_attn_weights: return the mean of the heads' weights.
        is_causal: a hint that `attn_mask` is causal.

    Returns:
        (L, N, E); and the weights, (N, L, S) or (N, h, L, S), or None.

    Raises:
        AssertionError: shapes or dtypes do not match.
        RuntimeError: a mask of a wrong shape; `is_causal` without an `attn_mask`.
    Source: Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762, 3.2.2.
    """
    batched = _check(query, key, value, embed_dim_to_check, num_heads, key_padding_mask, attn_mask)
    if is_causal and attn_mask is None:
        raise RuntimeError("multi_head_attention_forward(): is_causal needs an attn_mask, which it describes")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    projected = _project(_with_batch(query, key, value), weights, in_proj_bias)
    q, k, v = _heads(projected, num_heads, bias_k, bias_v, static_k, static_v, add_zero_attn)
    hint = is_causal and key_padding_mask is None and not need_weights
    extra = (bias_k is not None) + bool(add_zero_attn)
    mask = None if hint else _merged(attn_mask, key_padding_mask, q, k, extra)
    y, probabilities = _attend(q, k, v, mask, dropout_p if training else 0.0, hint, need_weights)
    y = linear(flatten(permute(y, (2, 0, 1, 3)), -2), out_proj_weight, out_proj_bias)
    if need_weights and average_attn_weights:
        probabilities = mean(probabilities, 1)
    if not batched:
        y, probabilities = y.squeeze(1), probabilities.squeeze(0) if need_weights else None
    return y, probabilities


def _check(query, key, value, features, num_heads, key_padding_mask, attn_mask):
    """Returns whether the inputs are batched; raises AssertionError unless they match."""
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise AssertionError(f"query, key and value must be 2-D, or batched and 3-D, got {shapes}")
    if query.shape[-1] != features or features % num_heads:
        raise AssertionError(f"expected {features} features that {num_heads} heads can share, got {shapes}")
    if key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(f"key and value must have the same length and batch, got {shapes}")
    for name, mask, dims in (
        ("key_padding_mask", key_padding_mask, (query.ndim - 1,)), ("attn_mask", attn_mask, (2, 3)),
    ):
        if mask is None:
            continue
        if mask.ndim not in dims or (mask.dtype != bool and not is_floating_point(mask.dtype)):
            raise AssertionError(
                f"{name} must be bool or floating-point and have {' or '.join(map(str, dims))} dims for a "
                f"{query.ndim}-D query, got {mask.dtype} of shape {tuple(mask.shape)}"
            )
    return query.ndim == 3


def _with_batch(*inputs):
    """Returns the inputs with a dim for the batch; identical tensors stay identical."""
    batches = {id(x): x if x.ndim == 3 else x.unsqueeze(1) for x in inputs}
    return tuple([batches[id(x)] for x in inputs])


def _project(inputs, weights, bias):
    """Returns q, k and v, (length, N, E) each; for self-attention with one product."""
    query, key, value = inputs
    if isinstance(weights, Tensor) and query is key is value:
        return chunk(linear(query, weights, bias), 3, -1)
    if isinstance(weights, Tensor):
        weights = chunk(weights, 3)
    biases = (None,) * 3 if bias is None else chunk(bias, 3)
    if any(w is None for w in weights):
        raise AssertionError("multi_head_attention_forward(): a weight of the projections is missing")
    return tuple([linear(*args) for args in zip(inputs, weights, biases, strict=True)])


def _heads(projected, count, bias_k, bias_v, static_k, static_v, add_zero_attn):
    """Returns q, k and v, (N, heads, length, E / heads) each, with additional keys and values."""
    q, k, v = projected
    if (bias_k is None) != (bias_v is None):
        raise AssertionError("multi_head_attention_forward(): bias_k and bias_v go together, got only one")
    if bias_k is not None:
        k, v = (cat([x, b.expand(1, *x.shape[1:])]) for x, b in ((k, bias_k), (v, bias_v)))
    q, k, v = (permute(unflatten(x, 2, (count, -1)), (1, 2, 0, 3)) for x in (q, k, v))
    k = k if static_k is None else _static("static_k", static_k, k, bias_k)
    v = v if static_v is None else _static("static_v", static_v, v, bias_v)
    if add_zero_attn:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    return q, k, v


def _static(name, static, x, bias):
    """Returns given keys or values, (N heads, length, E / heads), in the shape of projected ones."""
    n, heads, _, features = x.shape
    if bias is not None:
        raise AssertionError(f"multi_head_attention_forward(): bias_k and bias_v can't be added to {name}")
    if static.ndim != 3 or (static.shape[0], static.shape[2]) != (n * heads, features):
        raise AssertionError(f"{name} must be ({n * heads}, length, {features}), got {tuple(static.shape)}")
    return reshape(static, (n, heads, *static.shape[1:]))


def _attend(q, k, v, mask, dropout_p, is_causal, need_weights):
    """Returns (attention, its weights or None); without the weights it uses the fused attention."""
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal), None
    scores = matmul(q * math.sqrt(1 / q.shape[-1]), k.transpose(-1, -2))
    probabilities = dropout(softmax(scores if mask is None else scores + mask, -1), dropout_p)
    return matmul(probabilities, v), probabilities


def _merged(attn_mask, key_padding_mask, q, k, extra):
    """Returns both masks as values added to the scores, broadcastable to (N, heads, L, S); 0 for the last
    `extra` keys."""
    (n, heads, length, _), keys = q.shape, k.shape[-2] - extra
    total = None
    if attn_mask is not None:
        if tuple(attn_mask.shape) not in ((length, keys), (n * heads, length, keys)):
            raise RuntimeError(
                f"the shape of the attn_mask is {tuple(attn_mask.shape)}, but should be {(length, keys)} "
                f"or {(n * heads, length, keys)}"
            )
        total = _additive(attn_mask, q.dtype)
        total = total if total.ndim == 2 else reshape(total, (n, heads, length, keys))
    if key_padding_mask is not None:
        mask = key_padding_mask if key_padding_mask.ndim == 2 else key_padding_mask.unsqueeze(0)
        if tuple(mask.shape) != (n, keys):
            raise AssertionError(
                f"expected a key_padding_mask of shape {(n, keys)}, got {tuple(key_padding_mask.shape)}"
            )
        mask = reshape(_additive(mask, q.dtype), (n, 1, 1, keys))
        total = mask if total is None else total + mask
    return pad(total, (0, extra)) if extra and total is not None else total


def _additive(mask, dtype):
    """Returns -inf where a bool mask is True, else 0; other masks unchanged."""
    if mask.dtype != bool:
        return mask
    return where(mask, -math.inf, zeros((), dtype=dtype, device=mask.device))
