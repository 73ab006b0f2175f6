"""Softmax, its logarithm, and softmin."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...backends.blas import row_sums
from ...core.tensor import Tensor
from ...ops.dims import canonical_dim
from .activations import require_float
from .composite import composite


@composite
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x_i) / sum_j exp(x_j) along a dim; a row of -inf gives NaN.

    Args:
        dim: without it, 0 for tensors of 0, 1 and 3 dims, else 1, as PyTorch once chose; say it.
        dtype: cast to it first.

    Raises:
        IndexError: there is no such dim.
    """
    if not input.numel():
        return input.exp()
    power = (input - input.detach().amax(dim, True)).exp()  # y stays the same if all x change by the same
    return power / power.sum(dim, True)


@composite
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)) = x_i - log(sum_j exp(x_j)) along a dim, without losing small probabilities.

    Args:
        dim, dtype: as for `softmax`.

    Raises:
        IndexError: there is no such dim.
    """
    if not input.numel():
        return input.exp()
    shifted = input - input.detach().amax(dim, True)
    return shifted - shifted.exp().sum(dim, True).log()


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x): exp(-x_i) / sum_j exp(-x_j) along a dim; the arguments are those of `softmax`."""
    return softmax(-input, dim, _stacklevel + 1, dtype)


def _checker(name):
    def check(input, dim, stacklevel, dtype):
        if dim is None:
            dim = 0 if input.ndim in (0, 1, 3) else 1
            warnings.warn(f"{name}(): implicit choice of dim={dim}; say dim=", stacklevel=stacklevel)
        if dtype is not None:
            input = input.to(dtype)
        require_float(input, name)
        return input, canonical_dim(dim, input.ndim), stacklevel, None

    return check


softmax.check(_checker("softmax"))
log_softmax.check(_checker("log_softmax"))


@softmax.manual
def _softmax(x, dim, _stacklevel, dtype):
    y = shifted(x, dim)
    np.exp(y, out=y)
    y /= total(y, dim)

    def grad(g):
        d = g * y
        d -= y * total(d, dim)
        return d

    return y, grad


@log_softmax.manual
def _log_softmax(x, dim, _stacklevel, dtype):
    y = shifted(x, dim)
    y -= np.log(total(np.exp(y), dim))
    return y, lambda g: g - np.exp(y) * total(g, dim)


def shifted(x: Any, dim: int) -> Any:
    """x minus its largest element along the dim: now exp(x) can't overflow. A new array."""
    if x.size == 0:
        return x.copy()
    return np.asarray(x - np.max(x, axis=dim if x.ndim else None, keepdims=True), like=x)


def total(x: Any, dim: int) -> Any:
    """The sum along a dim, which stays, of size 1."""
    if dim == x.ndim - 1:
        return row_sums(x)
    return np.sum(x, axis=dim if x.ndim else None, keepdims=True)
