"""Shared by the attention kernels: which tiles of scores are computed, and how a tile is loaded."""

from __future__ import annotations

import functools
import math

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.dropout import Draw, scale_of_kept
from .launch import launch
from .sizes import cdiv, next_power_of_2
from .tune import Tuned

LOG2_E = tl.constexpr(1.4426950408889634)
# Float32 products as three TF32 products on tensor cores, as in PyTorch's attention kernel. Triton's exact
# ones keep whole rows in registers, of which there aren't enough.
PRECISION = "tf32x3"


@triton.jit
def head_of(ptr, strides, batch, head):
    """The address of a head of an array (batch, head, row, feature) with these strides."""
    return ptr + tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]


@triton.jit
def load_rows(ptr, stride, first, count, ROWS: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr, column=0):
    """Rows from `first` and columns from `column` on of an array (count, E): (ROWS, BLOCK), 0 outside."""
    row, offset = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = row < count - first
    if E % BLOCK != 0:
        inside &= column + offset < E
    return tl.load(
        ptr + tl.cast(first, tl.int64) * stride + column + (row * stride + offset), mask=inside, other=0.0
    )


@triton.jit
def products(
    x, x_ptr, x_stride, first_x, x_count, y, y_ptr, y_stride, first_y, y_count,
    E: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):
    """x y^T of two tiles of rows; with a STEP shorter than rows, x and y are loaded again in steps, to save
    registers."""
    # Shapes: x (x_count, E); y (y_count, E)
    if x.shape[1] <= STEP:
        s = tl.dot(x, tl.trans(y), input_precision=PRECISION)
    else:
        s = tl.zeros((x.shape[0], y.shape[0]), tl.float32)
        for column in range(0, E, STEP):
            a = load_rows(x_ptr, x_stride, first_x, x_count, x.shape[0], E, STEP, column)
            b = load_rows(y_ptr, y_stride, first_y, y_count, y.shape[0], E, STEP, column)
            s = tl.dot(a, tl.trans(b), s, input_precision=PRECISION)
    return s


@triton.jit
def store_rows(ptr, stride, first, count, x, E: tl.constexpr):
    """The reverse of `load_rows`."""
    row, column = tl.arange(0, x.shape[0])[:, None], tl.arange(0, x.shape[1])[None, :]
    at = ptr + tl.cast(first, tl.int64) * stride + (row * stride + column)
    tl.store(at, x.to(ptr.dtype.element_ty), mask=(row < count - first) & (column < E))


@triton.jit
def masked(s, scale, ptr, strides, query, key, length, keys):
    """scale * s with the mask of their head: or -inf with a bool mask, + mask with a float mask.

    Of `query` and `key` one is (n, 1), the other (1, m).
    """
    at = ptr + tl.cast(query, tl.int64) * strides[2] + tl.cast(key, tl.int64) * strides[3]
    mask = tl.load(at, mask=(query < length) & (key < keys), other=0)
    if ptr.dtype.element_ty.is_floating():
        s = s * scale + mask.to(tl.float32)
    else:
        s = tl.where(mask != 0, s * scale, -float("inf"))
    return s


@triton.jit
def sees(query, key, keys, window, CAUSAL: tl.constexpr):
    """Whether each query may see each key."""
    seen = key < keys
    if CAUSAL:
        seen = seen & (query >= key)
        if window is not None:
            seen = seen & (query - key < window)
    return seen


@triton.jit
def others_seen(query, keys, window, CAUSAL: tl.constexpr):
    """How many keys each query sees besides one, by its position, as a float."""
    if not CAUSAL:
        others = keys - 1
    elif window is None:
        others = tl.minimum(query, keys - 1)
    else:
        others = tl.minimum(query, keys - 1) - tl.maximum(query - window + 1, 0)
    return others * 1.0


@triton.jit
def keys_of(first, keys, window, CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """The keys that the queries `first` to `first` + BLOCK_Q - 1 see, in multiples of BLOCK_K.

    Returns a, b, c, d: all of them see the keys b to c, some of them those from a to b and from c to d.
    """
    a, b, c, d = 0, 0, keys, keys
    if CAUSAL:
        c, d = tl.minimum(keys, first + 1), tl.minimum(keys, first + BLOCK_Q)
        if window is not None:
            a = tl.maximum(first - window + 1, 0) // BLOCK_K * BLOCK_K
            b = tl.cdiv(tl.maximum(first + BLOCK_Q - window, 0), BLOCK_K) * BLOCK_K
    b = tl.minimum(b, d)
    return a, b, tl.maximum(c // BLOCK_K * BLOCK_K, b), d


@triton.jit
def queries_of(
    first, length, keys, window, CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The queries that see the keys `first` to `first` + BLOCK_K - 1, in multiples of BLOCK_Q.

    Returns a, b, c, d: the queries b to c see all of them, those from a to b and from c to d some, or only
    the last key.
    """
    a, b, c, d = 0, 0, length, length
    if CAUSAL:
        a = first // BLOCK_Q * BLOCK_Q
        b = tl.cdiv(first + BLOCK_K - 1, BLOCK_Q) * BLOCK_Q
        if window is not None:
            c = tl.minimum(length, first + window - tl.where(first + 1 == keys, 1, 0)) // BLOCK_Q * BLOCK_Q
            d = tl.minimum(length, first + BLOCK_K - 1 + window)
    b = tl.minimum(b, d)
    return a, b, tl.maximum(b, c), d


@triton.jit
def weights_of(s, unit, lse, log_total):
    """exp(s - lse) from what the forward kernel saved."""
    return tl.exp2(s * unit - lse if log_total is None else (s - lse) * unit - log_total)


@triton.jit
def keep_mask(seed, dropout_p, head, query, key, length, keys):
    """False with probability `dropout_p`, drawn for each weight by its index in (batch, head, query, key)."""
    row = tl.cast(head, tl.int64) * length + query
    return tl.rand(seed, row * keys + key) > dropout_p


def heads_of(a: RawArray, batch: tuple[int, ...]) -> RawArray:
    """Returns (..., n, e) as (B, H, n, e), broadcast to these leading dims, with adjacent features."""
    if a.shape[-1] > 1 and a.strides[-1] != a.itemsize:
        a = np.ascontiguousarray(a, like=a)
    return by_head(a, batch)


def by_head(a: RawArray, batch: tuple[int, ...]) -> RawArray:
    """Returns (..., n, m) as (B, H, n, m), broadcast to these leading dims; a view of up to 4 dims."""
    if len(batch) == 2 and a.shape[:-2] == batch:
        return a
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    return a.reshape(math.prod(batch[:-1]), math.prod(batch[-1:]), *a.shape[-2:])


def block_of(features: int) -> int:
    """Returns the columns of a tile."""
    return max(16, next_power_of_2(features))


def new_heads(like: RawArray, features: int) -> RawArray:
    """Returns a new (B, H, n, features) with a token's heads adjacent: joining them needs no copy."""
    b, h, n, _ = like.shape
    return np.empty((b, n, h, features), like.dtype, like=like).swapaxes(1, 2)


def settings(
    q: RawArray, k: RawArray, v: RawArray, is_causal: bool, scale: float, window: int | None = None,
    dropout: tuple[Draw, float] | None = None,
) -> tuple[tuple, dict]:
    """Returns the kernels' scalars and compile-time arguments."""
    draw, p = dropout or (None, None)
    seed = None if draw is None else draw.seed
    kept_scale = 1.0 if p is None else scale_of_kept(p)
    heads, group = q.shape[1], q.shape[1] // max(k.shape[1], 1)
    scalars = (heads, group, q.shape[2], k.shape[2], float(scale), window, seed, p, kept_scale)
    e, ev = q.shape[3], v.shape[3]
    # As wide as each other: for tiles of two layouts at one address in shared memory ptxas 12.8, that of
    # Triton 3.6, makes products with an address that nothing has set.
    block = block_of(max(e, ev))
    meta = {"E": e, "EV": ev, "BLOCK_E": block, "BLOCK_EV": block}
    return scalars, {**meta, "CAUSAL": is_causal, "PRECISION": PRECISION}


def strides_of(a: RawArray) -> tuple[int, ...]:
    """Returns the strides in elements."""
    return _in_elements(a.strides, a.itemsize)


@functools.lru_cache(1024)
def _in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple([step // itemsize for step in strides])


def launch_tiles(
    kernel: Tuned, block: str | None, arrays: list[RawArray | None], saved: list[RawArray | None],
    scalars: tuple, meta: dict,
) -> None:
    """Launches a program for each BLOCK_Q queries, or BLOCK_K keys, of each head.

    Args:
        block: "BLOCK_Q" or "BLOCK_K"; None for one program for each head of keys.
        arrays: (B, H, n, m) each, or None; queries first, then keys. Their strides are passed, too.
        saved: contiguous arrays, or None.
    """
    b, h, n, _ = arrays[block != "BLOCK_Q"].shape
    strides = [None if a is None else strides_of(a) for a in arrays]
    launch(kernel, lambda chosen: (b * h * (1 if block is None else cdiv(n, chosen[block])),),
           *arrays, *saved, *strides, *scalars, **meta)
