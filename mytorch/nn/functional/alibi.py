"""Attention with linear biases (ALiBi), which takes the place of position embeddings."""

from __future__ import annotations

import numpy as np

from ...core.tensor import Tensor
from ...ops import tensor
from ...ops.dims import fixed_size
from .types import DeviceLike, DTypeLike


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns the slope of each head, (num_heads,) float64: from 2^(-8 / num_heads) to 2^-8.

    If the number of heads is no power of two, the sequence is that of the power below it, followed by every
    other term of that for the power above it.

    Raises:
        ValueError: the number of heads isn't positive.
    """
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}")
    below = 1 << (num_heads.bit_length() - 1)
    first = 2.0 ** (-8 * np.arange(1, below + 1) / below)
    between = 2.0 ** (-4 * np.arange(1, 2 * (num_heads - below), 2) / below)
    return np.concatenate([first, between])


def alibi_bias(
    num_heads: int, queries: int, keys: int | None = None, is_causal: bool = True, dtype: DTypeLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Returns what ALiBi adds to the scores of attention: -slope * distance of the query from the key.

    It is the `attn_mask` of `scaled_dot_product_attention` or a layer. Each head has its own slope; heads of
    steep slopes attend to near keys.

    Args:
        num_heads: H
        queries: L, the number of queries; they are the last of the keys.
        keys: S, the number of keys; as many as queries by default.
        is_causal: the bias is -inf for keys after the query. (Attention takes no mask beside `is_causal`.)
        dtype: float32 by default.

    Returns:
        (H, L, S)

    Raises:
        ValueError: `num_heads` isn't positive, or there are more queries than keys.
    Source: Press, Smith & Lewis, "Train Short, Test Long", 2021, https://arxiv.org/abs/2108.12409, section 3;
        other numbers of heads than powers of two: the code of its authors,
        https://github.com/ofirpress/attention_with_linear_biases

    >>> F.alibi_bias(8, 3)[0]
    tensor([[ 0.00000     -inf     -inf]
            [-0.50000  0.00000     -inf]
            [-1.00000 -0.50000  0.00000]])
    """
    keys = queries if keys is None else keys
    if queries > keys:
        raise ValueError(f"the queries are the last of the keys, but there are {queries} of {keys}")
    queries, keys = fixed_size(queries), fixed_size(keys)
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    bias = alibi_slopes(num_heads)[:, None, None] * -np.abs(distance)
    if is_causal:
        bias[:, distance < 0] = -np.inf
    return tensor(bias, dtype=np.float32 if dtype is None else dtype, device=device)
