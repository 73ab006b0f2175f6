"""
The blocks of a Llama for one new token of one sequence, in one call. Each of them:

    z = x + W_o attention(rotate(W_q n), rotate(W_k n), W_v n),   n = rms_norm(x)
    y = z + W_down (silu(W_gate n) W_up n),                       n = rms_norm(z)

A token reads each weight once and computes little with it: ten operations a block would take as long between
their loops, in Python, as in them. The kernel finds weights and caches by their addresses, because Numba
takes longer for the thousand arrays of a model than for a block.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ....backends import threads
from ....backends.address import address_of
from ....backends.gemm import multiply_rows
from ....backends.jit import kernel, prange, routine
from ...functional.quantization import BLOCK
from .approximations import ZERO, sigmoid32
from .cached_attention import CHUNK, attend, combine, rotate, row_of
from .memory import floats, pointer
from .moments import distances_of, require_single
from .quantized_linear import multiply

require_dtypes = require_single

# Of a block: the projections, in this order, each with its kind and the addresses of codes (or numbers),
# scales, offsets and bias, 0 for None.
QUERY, KEY, VALUE, OUTPUT, GATE, UP, DOWN = range(7)
FLOATS, EIGHT_BITS, FOUR_BITS = range(3)


def weight_of(
    codes: np.ndarray, scales: np.ndarray | None, offsets: np.ndarray | None, bias: np.ndarray | None
) -> list[int]:
    """Returns a weight as the kernel takes it: the codes of a quantized one, or float32 numbers."""
    kind = {"f": FLOATS, "i": EIGHT_BITS, "u": FOUR_BITS}[codes.dtype.kind]
    return [kind, *[0 if a is None else address_of(a) for a in (codes, scales, offsets, bias)]]


@routine
def _multiply(weight, x, y, share, shares):
    """y = W x + bias for a share of the rows of the weight."""
    n, blocks = y.size, x.size // BLOCK
    kind, address, bias = weight[0], weight[1], floats(weight[4], n if weight[4] else 0)
    if kind == FLOATS:
        first, last = n * share // shares, n * (share + 1) // shares
        multiply_rows(carray(pointer(address), (n, x.size), np.float32), x, y, first, last)
        if bias.size:
            for i in range(first, last):
                y[i] += bias[i]
        return
    scales = carray(pointer(weight[2]), (n * blocks,), np.uint16)
    offsets = carray(pointer(weight[3]), (n * blocks if weight[3] else 0,), np.uint16)
    if kind == EIGHT_BITS:
        codes = carray(pointer(address), (n, x.size), np.int8)
        multiply(codes, scales, offsets, x, bias, y, share, shares)
    else:
        halves = carray(pointer(address), (n, x.size // 2), np.uint8)
        multiply(halves, scales, offsets, x, bias, y, share, shares)


@routine
def _add(x, y):
    """x += y"""
    for i in range(x.size):
        x[i] += y[i]


@routine
def _normalize(x, weight, eps, out):
    """out = x weight / sqrt(mean(x^2) + eps), for the address of the weight."""
    variance = np.float32(distances_of(x, ZERO)[1] / x.size)
    scale, rstd = floats(weight, x.size), np.float32(1 / np.sqrt(variance + eps))
    for i in range(x.size):
        out[i] = x[i] * rstd * scale[i]


@routine
def _store(qkv, cos, sin, heads, keys, values, position):
    """Rotates the queries and keys of qkv (H + 2 K, E); writes keys and values to the caches."""
    kv_heads, features = (qkv.shape[0] - heads) // 2, qkv.shape[1]
    rotated = np.empty(features, np.float32)
    for head in range(heads):
        rotate(qkv[head], cos, sin, rotated)
        _copy(rotated, qkv[head])
    for head in range(kv_heads):
        rotate(qkv[heads + head], cos, sin, row_of(keys, 0, head, position, features))
        _copy(qkv[heads + kv_heads + head], row_of(values, 0, head, position, features))


@routine
def _copy(x, out):
    for i in range(out.size):
        out[i] = x[i]


@routine
def _gate(gate, up, share, shares):
    """gate = silu(gate) up, in a share"""
    for i in range(gate.size * share // shares, gate.size * (share + 1) // shares):
        gate[i] = gate[i] * sigmoid32(gate[i]) * up[i]


@kernel(grain=0)
def _blocks(x, eps, norms, weights, sizes, cos, sin, caches, strides, position, scale, shares):
    """x = what the blocks make of x (C), in place. `strides` are the bytes between heads and tokens of the
    caches (K, S, E)."""
    heads, kv_heads, features, hidden = sizes
    chunks, group = position // CHUNK + 1, heads // kv_heads
    n, gate, up = np.empty_like(x), np.empty(hidden, np.float32), np.empty(hidden, np.float32)
    qkv = np.empty((heads + 2 * kv_heads, features), np.float32)
    flat, q_size, k_size = qkv.reshape(-1), heads * features, kv_heads * features
    q, k, v = flat[:q_size], flat[q_size : q_size + k_size], flat[q_size + k_size :]
    parts = np.empty((heads, chunks, features + 2), np.float32)
    queries = qkv.ctypes.data, 0, 4 * features, 0
    for layer in range(weights.shape[0]):
        weight = weights[layer]
        keys, values = (caches[layer, 0], 0) + strides, (caches[layer, 1], 0) + strides  # noqa: RUF005
        _normalize(x, norms[layer, 0], eps, n)
        for share in prange(shares):
            _multiply(weight[QUERY], n, q, share, shares)
            _multiply(weight[KEY], n, k, share, shares)
            _multiply(weight[VALUE], n, v, share, shares)
        _store(qkv, cos, sin, heads, keys, values, position)

        for item in prange(kv_heads * chunks):
            kv_head, chunk, scores = item // chunks, item % chunks, np.empty(CHUNK, np.float32)
            start, end = CHUNK * chunk, min(position + 1, CHUNK * chunk + CHUNK)
            for head in range(kv_head * group, kv_head * group + group):
                attend(queries, keys, values, 0, head, kv_head, start, end, features, features, scale,
                       scores, parts[head, chunk])
        for head in range(heads):
            combine(parts[head], qkv[head])

        for share in prange(shares):
            _multiply(weight[OUTPUT], q, n, share, shares)
        _add(x, n)
        _normalize(x, norms[layer, 1], eps, n)
        for share in prange(shares):
            _multiply(weight[GATE], n, gate, share, shares)
            _multiply(weight[UP], n, up, share, shares)
            _gate(gate, up, share, shares)
        for share in prange(shares):
            _multiply(weight[DOWN], gate, n, share, shares)
        _add(x, n)


def blocks(
    x: np.ndarray, eps: float, norms: np.ndarray, weights: np.ndarray, sizes: tuple[int, int, int, int],
    scale: float, angles: tuple[np.ndarray, np.ndarray], caches: np.ndarray, strides: tuple[int, int],
    position: int,
) -> np.ndarray:
    """Returns the new hidden state (1, 1, C); stores the token's keys and values in the caches.

    Args:
        x: (1, 1, C), and all arrays at addresses too: float32 in C order; the codes of weights are int8 or
            uint8, scales and offsets uint16.
        eps, norms: the epsilon of all norms; the addresses (layers, 2) of their weights.
        weights: (layers, 7, 5), of each block `weight_of` queries, keys, values, output, gate, up and down.
        sizes: heads of the queries, those of keys and values, features of a head, features of the MLP.
        scale: the factor of the scores.
        angles: cos and sin, E / 2 numbers.
        caches, strides: the addresses (layers, 2) of keys and values (1, K, S, E), and the bytes between
            their heads and their tokens.
        position: the number of tokens in the caches.
    """
    y = x.copy()
    cos, sin = angles
    _blocks(
        y.reshape(-1), eps, norms, weights, sizes, cos.reshape(-1), sin.reshape(-1), caches, strides,
        position, np.float32(scale), threads.get_num_threads(),
    )
    return y
