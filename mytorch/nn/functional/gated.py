"""Gated activations: one half of the input says how much of the other passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...ops import chunk
from ...ops.dims import canonical_dim
from .activations import raw_sigmoid, require_float, sigmoid, silu
from .composite import composite
from .gelu import check_approximate, gelu, gelu_by_hand


@composite
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a sigmoid(b) of the two halves a and b of the input along a dim.

    Raises:
        RuntimeError: the dim is of odd size, or the input 0-d.
        IndexError: there is no such dim.
    Source: Dauphin, Fan, Auli & Grangier, 2016, https://arxiv.org/abs/1612.08083
    """
    a, b = chunk(input, 2, dim)
    return a * sigmoid(b)


@glu.check
def _check_glu(input, dim):
    _check_halves("glu", input, dim)


@composite
def swiglu(input: Tensor, dim: int = -1) -> Tensor:
    """silu(a) b of the two halves a and b of the input along a dim; PyTorch has no function for it.

    Raises:
        RuntimeError, IndexError: as `glu`.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, https://arxiv.org/abs/2002.05202
    """
    a, b = chunk(input, 2, dim)
    return silu(a, auto=True) * b


@swiglu.check
def _check_swiglu(input, dim):
    return input, _check_halves("swiglu", input, dim)


@swiglu.manual
def _swiglu(x, dim):
    """With s = sigmoid(a): da = g b (s + a s (1 - s)),  db = g a s."""
    a, b = halves(x, dim)
    s = raw_sigmoid(a)
    silu_a = a * s

    def grad(g):
        d = np.empty_like(x)
        da, db = halves(d, dim)
        np.multiply(g * b, s + silu_a * (1 - s), out=da)
        np.multiply(g, silu_a, out=db)
        return d

    return silu_a * b, grad


@composite
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    """gelu(a) b of the two halves a and b of the input along a dim; PyTorch has no function for it.

    Args:
        approximate: which form of `gelu`, "none" or "tanh".

    Raises:
        RuntimeError, IndexError: as `glu`; `approximate` is something else.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, https://arxiv.org/abs/2002.05202
    """
    a, b = chunk(input, 2, dim)
    return gelu(a, approximate, auto=True) * b


@geglu.check
def _check_geglu(input, dim, approximate):
    dim = _check_halves("geglu", input, dim)
    check_approximate("geglu", approximate)
    return input, dim, approximate


@geglu.manual
def _geglu(x, dim, approximate):
    a, b = halves(x, dim)
    gelu_a, grad_gelu = gelu_by_hand(a, approximate)

    def grad(g):
        d = np.empty_like(x)
        da, db = halves(d, dim)
        da[...] = grad_gelu(g * b)
        np.multiply(g, gelu_a, out=db)
        return d

    return gelu_a * b, grad


def halves(x: Any, dim: int) -> tuple[Any, Any]:
    """Views of the two halves of a raw array along a dim."""
    n = x.shape[dim] // 2
    before = (slice(None),) * dim
    return x[(*before, slice(0, n))], x[(*before, slice(n, 2 * n))]


def _check_halves(name: str, input: Tensor, dim: int) -> int:
    """The dim, counted from 0, if it has halves."""
    require_float(input, name)
    if input.ndim == 0:
        raise RuntimeError(f"{name}(): a 0-d tensor has no halves")
    dim = canonical_dim(dim, input.ndim)
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"{name}(): the halved dim must be of even size, but dim {dim} is of size {input.shape[dim]}"
        )
    return dim
