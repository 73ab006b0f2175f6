"""Rotary position embedding (RoPE)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends.device import RawArray
from ...backends.dtypes import is_half
from ...core.tensor import Tensor
from ...core.unbroadcast import unbroadcast
from ...ops import cat, chunk, contiguous, stack
from .composite import composite, require_float


@composite(order=contiguous)
def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Rotates pairs (a, b) of features by angles that depend on the position; not in PyTorch.

        (a cos - b sin,  a sin + b cos)

    Args:
        input: (..., T, D), queries or keys.
        cos, sin: of the angles, (T, D / 2) or broadcastable to (..., T, D / 2); in the input's dtype, or in
            float32 for half precision.
        interleaved: a pair is the features 2 i and 2 i + 1 (GPT-J); without it i and i + D / 2 (GPT-NeoX,
            Llama).

    Raises:
        RuntimeError: shapes or dtypes do not match.
    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
        https://arxiv.org/abs/2104.09864, section 3.4.2.
    """
    a, b = (input[..., 0::2], input[..., 1::2]) if interleaved else chunk(input, 2, -1)
    rotated = a * cos - b * sin, a * sin + b * cos
    return stack(rotated, -1).reshape(input.shape) if interleaved else cat(rotated, -1)


@rotary_embedding.check
def _check(input, cos, sin, interleaved):
    require_float(input.dtype, "rotary_embedding")
    shape, shapes = tuple(input.shape), f"cos {tuple(cos.shape)}, sin {tuple(sin.shape)}"
    if len(shape) < 2 or shape[-1] % 2:
        raise RuntimeError(f"rotary_embedding(): expected an input (..., T, D) with an even D, got {shape}")
    angles = (*shape[:-1], shape[-1] // 2)
    if not all(broadcasts(t.shape, angles) for t in (cos, sin)):
        raise RuntimeError(f"rotary_embedding(): {shapes} can't be broadcast to {angles}, for input {shape}")
    dtypes = (input.dtype, np.float32) if is_half(input.dtype) else (input.dtype,)
    if cos.dtype not in dtypes or sin.dtype not in dtypes:
        raise RuntimeError(
            f"rotary_embedding(): input {input.dtype} doesn't go with cos {cos.dtype}, sin {sin.dtype}"
        )


def broadcasts(shape: tuple, to: tuple) -> bool:
    """Returns whether an array of this shape can be broadcast to another."""
    if len(shape) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))


@rotary_embedding.manual
def _rotary(x, cos, sin, interleaved):
    return rotate(x, cos, sin, interleaved), (
        lambda g: rotate(g, cos, -sin, interleaved),
        *angle_vjps(x, cos, sin, interleaved),
    )


def rotate(x: RawArray, cos: RawArray, sin: RawArray, interleaved: bool) -> RawArray:
    """Returns x with its pairs rotated; -sin rotates back."""
    y = np.empty(x.shape, x.dtype, like=x)
    (a, b), (ya, yb) = pairs(x, interleaved), pairs(y, interleaved)
    np.subtract(a * cos, b * sin, out=ya)
    np.add(a * sin, b * cos, out=yb)
    return y


def angle_vjps(x: RawArray, cos: RawArray, sin: RawArray, interleaved: bool) -> tuple[Callable, Callable]:
    """Returns the functions from the gradient of the result to dcos and dsin."""
    cos_shape, sin_shape = cos.shape, sin.shape

    def dcos(g):
        (a, b), (ga, gb) = pairs(_upcast(x), interleaved), pairs(_upcast(g), interleaved)
        return unbroadcast(ga * a + gb * b, cos_shape)

    def dsin(g):
        (a, b), (ga, gb) = pairs(_upcast(x), interleaved), pairs(_upcast(g), interleaved)
        return unbroadcast(gb * a - ga * b, sin_shape)

    return dcos, dsin


def _upcast(x: RawArray) -> RawArray:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def pairs(x: RawArray, interleaved: bool) -> tuple[RawArray, RawArray]:
    """Returns views of the first and the second features of all pairs."""
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]
