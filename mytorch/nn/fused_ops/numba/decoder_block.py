"""
A block of a Llama for one new token of one sequence, in one call:

    z = x + W_o attention(rotate(W_q n), rotate(W_k n), W_v n),   n = rms_norm(x)
    y = z + W_down (silu(W_gate n) W_up n),                       n = rms_norm(z)

Such a block reads each weight once and computes little with it: ten operations of their own would take as
long between the loops, in Python, as in them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import types
from numba.extending import overload

from ....backends.gemm import multiply_rows
from ....backends.jit import kernel, prange, routine
from .approximations import ZERO, sigmoid32
from .attention_parts import addresses
from .cached_attention import CHUNK, attend, combine, rotate
from .memory import floats
from .moments import distances_of, require_single
from .quantized_linear import NO_BITS, NO_NUMBERS, TILE, multiply_tile

require_dtypes = require_single
Weight = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def weight_of(
    codes: np.ndarray, scales: np.ndarray | None, offsets: np.ndarray | None, bias: np.ndarray | None
) -> Weight:
    """Returns a weight as the kernel takes it: the codes of a quantized one, or float32 numbers."""
    empty = NO_BITS if scales is None else scales, NO_BITS if offsets is None else offsets
    return codes, *empty, NO_NUMBERS if bias is None else bias


def _multiply(weight, x, y, tile):
    """y = W x + bias for TILE rows of the weight."""


@overload(_multiply)
def _(weight, x, y, tile):
    kind = weight[0].dtype
    four_bits = kind == types.uint8

    def quantized(weight, x, y, tile):
        codes, scales, offsets, bias = weight
        multiply_tile(codes, scales, offsets, four_bits, x, bias, y, tile)

    def single(weight, x, y, tile):
        codes, _, _, bias = weight
        first, last = TILE * tile, min(y.size, TILE * tile + TILE)
        multiply_rows(codes, x, y, first, last)
        if bias.size:
            for i in range(first, last):
                y[i] += bias[i]

    return single if kind == types.float32 else quantized


@routine
def _tiles(n):
    return (n + TILE - 1) // TILE


@routine
def _normalize(x, weight, eps, out):
    """out = x weight / sqrt(mean(x^2) + eps)"""
    variance = np.float32(distances_of(x, ZERO)[1] / x.size)
    rstd = np.float32(1 / np.sqrt(variance + eps))
    for i in range(x.size):
        out[i] = x[i] * rstd * weight[i]


@routine
def _store(qkv, angles, heads, k, v, position):
    """Rotates the queries and keys of qkv (H + 2 K, E); writes keys and values to the caches."""
    cos, sin = angles
    kv_heads, features = (qkv.shape[0] - heads) // 2, qkv.shape[1]
    rotated = np.empty(features, np.float32)
    for head in range(heads):
        rotate(qkv[head], cos, sin, rotated)
        _copy(rotated, qkv[head])
    for head in range(kv_heads):
        rotate(qkv[heads + head], cos, sin, floats(k[0] + head * k[1] + position * k[2], features))
        _copy(qkv[heads + kv_heads + head], floats(v[0] + head * v[1] + position * v[2], features))


@routine
def _copy(x, out):
    for i in range(out.size):
        out[i] = x[i]


@routine
def _gate(gate, up, tile):
    """gate = silu(gate) up, in a tile"""
    for i in range(TILE * tile, min(gate.size, TILE * tile + TILE)):
        gate[i] = gate[i] * sigmoid32(gate[i]) * up[i]


@routine
def _add(x, residual, tile):
    """x += residual, in a tile"""
    for i in range(TILE * tile, min(x.size, TILE * tile + TILE)):
        x[i] += residual[i]


@kernel(grain=0)
def _block(x, eps, norms, projections, o, gate, up, down, angles, k, v, kv_heads, position, scale, y):
    """y (C) of x (C). `k` and `v` are the addresses of the caches (K, S, E), and their strides in bytes."""
    (first_norm, second_norm), (w_q, w_k, w_v), n = norms, projections, np.empty_like(x)
    features, keys = w_k[0].shape[0] // kv_heads, position + 1
    heads = w_q[0].shape[0] // features
    qkv = np.empty((heads + 2 * kv_heads, features), np.float32)
    flat = qkv.reshape(-1)
    queries, new_keys, new_values = (
        flat[: heads * features], flat[heads * features : -kv_heads * features], flat[-kv_heads * features :]
    )  # fmt: skip
    _normalize(x, first_norm, eps, n)
    of_queries, of_keys = _tiles(queries.size), _tiles(new_keys.size)
    for tile in prange(of_queries + 2 * of_keys):
        if tile < of_queries:
            _multiply(w_q, n, queries, tile)
        elif tile < of_queries + of_keys:
            _multiply(w_k, n, new_keys, tile - of_queries)
        else:
            _multiply(w_v, n, new_values, tile - of_queries - of_keys)
    _store(qkv, angles, heads, k, v, position)

    chunks, group = (keys + CHUNK - 1) // CHUNK, heads // kv_heads
    parts = np.empty((heads, chunks, features + 2), np.float32)
    q = qkv.ctypes.data, 0, 4 * features, 0
    k4, v4 = (k[0], 0, k[1], k[2]), (v[0], 0, v[1], v[2])
    for item in prange(kv_heads * chunks):
        kv_head, chunk, scores = item // chunks, item % chunks, np.empty(CHUNK, np.float32)
        start, end = CHUNK * chunk, min(keys, CHUNK * chunk + CHUNK)
        for head in range(kv_head * group, kv_head * group + group):
            part = parts[head, chunk]
            attend(q, k4, v4, 0, head, kv_head, start, end, features, features, scale, scores, part)
    for head in range(heads):
        combine(parts[head], qkv[head])

    z = np.empty_like(x)
    for tile in prange(_tiles(x.size)):
        _multiply(o, queries, z, tile)
        _add(z, x, tile)
    _normalize(z, second_norm, eps, n)
    hidden, other = np.empty(gate[0].shape[0], np.float32), np.empty(gate[0].shape[0], np.float32)
    for tile in prange(_tiles(hidden.size)):
        _multiply(gate, n, hidden, tile)
        _multiply(up, n, other, tile)
        _gate(hidden, other, tile)
    for tile in prange(_tiles(x.size)):
        _multiply(down, hidden, y, tile)
        _add(y, z, tile)


def decoder_block(
    x: np.ndarray, eps: float, norms: tuple[np.ndarray, np.ndarray], weights: Sequence[Weight], scale: float,
    angles: tuple[np.ndarray, np.ndarray], caches: tuple[np.ndarray, np.ndarray], position: int,
) -> np.ndarray:  # fmt: skip
    """Returns the new hidden state (1, 1, C); stores the token's key and value in the caches.

    Args:
        x: (1, 1, C), and all others too: float32 in C order.
        eps, norms: the epsilon and the weights of the two norms.
        weights: of queries, keys, values, output, gate, up and down; see `weight_of`.
        scale: the factor of the scores.
        angles: cos and sin, E / 2 numbers.
        caches: keys and values (1, K, S, E).
        position: the number of tokens in the caches.
    """
    q, k, v, o, gate, up, down = weights
    y = np.empty_like(x)
    addressed = [address[:1] + address[2:] for address in addresses(*caches)]
    cos, sin = angles
    _block(
        x.reshape(-1), eps, norms, (q, k, v), o, gate, up, down, (cos.reshape(-1), sin.reshape(-1)),
        *addressed, caches[0].shape[1], position, np.float32(scale), y.reshape(-1),
    )  # fmt: skip
    return y
