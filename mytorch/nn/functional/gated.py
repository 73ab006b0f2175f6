"""Gated activations: one half of the input says how much of the other passes."""

from __future__ import annotations

from ...ops import chunk
from ...ops.dims import canonical_dim
from ...ops.op import require_tensor
from ...tensor import Tensor
from .activations import require_float, sigmoid, silu
from .composite import composite


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


def swiglu(input: Tensor, dim: int = -1) -> Tensor:
    """silu(a) b of the two halves a and b of the input along a dim; PyTorch has no function for it.

    Raises:
        RuntimeError, IndexError: as `glu`.
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, https://arxiv.org/abs/2002.05202
    """
    _check_halves("swiglu", input, dim)
    a, b = chunk(input, 2, dim)
    return silu(a) * b


def _check_halves(name: str, input: Tensor, dim: int) -> None:
    require_tensor(input, name)
    require_float(input, name)
    if input.ndim == 0:
        raise RuntimeError(f"{name}(): a 0-d tensor has no halves")
    dim = canonical_dim(dim, input.ndim)
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"{name}(): the halved dim must be of even size, but dim {dim} is of size {input.shape[dim]}"
        )
