"""Gated activations: glu, swiglu, geglu; one half of the input scales the other."""

from __future__ import annotations

import numpy as np

from ...backends.device import RawArray
from ...backends.memory_order import in_c_order
from ...core.tensor import Tensor
from ...ops import chunk, contiguous
from ...ops.dims import canonical_dim
from .activations import raw_sigmoid, sigmoid, silu
from .composite import composite, require_float
from .gelu import gelu, gelu_manual


@composite
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Returns a sigmoid(b) of the two halves a and b of the input along a dim.

    Raises:
        RuntimeError: the dim is of odd size, or the input 0-d.
        IndexError: no such dim.
    Source: Dauphin, Fan, Auli & Grangier, 2016, https://arxiv.org/abs/1612.08083

    >>> F.glu(mytorch.tensor([2.0, 0.0]))
    tensor([1.00000])
    """
    a, b = chunk(input, 2, dim)
    return a * sigmoid(b)


@glu.check
def _check_glu(input, dim):
    _check_halves("glu", input, dim)


@composite(order=contiguous)
def swiglu(input: Tensor, dim: int = -1) -> Tensor:
    """Returns silu(a) b of the two halves a and b of the input along a dim; not in PyTorch.

    Raises:
        RuntimeError, IndexError: as `glu`.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, https://arxiv.org/abs/2002.05202

    >>> F.swiglu(mytorch.ones(2, 6)).shape
    Size([2, 3])
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

    def vjp(g):
        d = np.empty_like(x)
        da, db = halves(d, dim)
        np.multiply(g * b, s + silu_a * (1 - s), out=da)
        np.multiply(g, silu_a, out=db)
        return d

    return in_c_order(silu_a * b), vjp


@composite(order=contiguous)
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    """Returns gelu(a) b of the two halves a and b of the input along a dim; not in PyTorch.

    Args:
        approximate: which form of `gelu`, "none" or "tanh".

    Raises:
        RuntimeError, IndexError: as `glu`; `approximate` has another value.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, https://arxiv.org/abs/2002.05202

    >>> F.geglu(mytorch.ones(2, 6)).shape
    Size([2, 3])
    """
    a, b = chunk(input, 2, dim)
    return gelu(a, approximate, auto=True) * b


@geglu.check
def _check_geglu(input, dim, approximate):
    dim = _check_halves("geglu", input, dim)
    gelu.checker(input, approximate)
    return input, dim, approximate


@geglu.manual
def _geglu(x, dim, approximate):
    a, b = halves(x, dim)
    gelu_a, gelu_vjp = gelu_manual(a, approximate)

    def vjp(g):
        d = np.empty_like(x)
        da, db = halves(d, dim)
        da[...] = gelu_vjp(g * b)
        np.multiply(g, gelu_a, out=db)
        return d

    return in_c_order(gelu_a * b), vjp


def halves(x: RawArray, dim: int) -> tuple[RawArray, RawArray]:
    """Returns views of the two halves along a dim."""
    n = x.shape[dim] // 2
    before = (slice(None),) * dim
    return x[(*before, slice(0, n))], x[(*before, slice(n, 2 * n))]


def _check_halves(name: str, input: Tensor, dim: int) -> int:
    """Returns the dim, counted from 0; raises unless it is of even size."""
    require_float(input.dtype, name)
    if input.ndim == 0:
        raise RuntimeError(f"{name}(): a 0-d tensor has no halves")
    dim = canonical_dim(dim, input.ndim)
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"{name}(): the halved dim must be of even size, but dim {dim} is of size {input.shape[dim]}"
        )
    return dim
