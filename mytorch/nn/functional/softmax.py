"""softmax, log_softmax and softmin."""

from __future__ import annotations

import warnings

import numpy as np

from ...backends.blas import row_sums
from ...backends.device import RawArray
from ...backends.memory_order import in_c_order
from ...core.tensor import Tensor
from ...ops import contiguous
from ...ops.dims import canonical_dim
from .composite import composite, require_float
from .types import DTypeLike


@composite(order=contiguous)
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike = None) -> Tensor:
    """Returns exp(x_i) / sum_j exp(x_j) along a dim; NaN for a row of -inf.

    Args:
        dim: by default 0 for tensors of 0, 1 and 3 dims, else 1, with a warning.
        dtype: the input is cast to it first.

    Raises:
        IndexError: no such dim.

    >>> F.softmax(mytorch.tensor([1.0, 1.0, 2.0]), dim=0)
    tensor([0.21194 0.21194 0.57612])
    """
    if not input.numel():
        return input.exp()
    power = (input - input.detach().amax(dim, True)).exp()  # a constant added to all x does not change y
    return power / power.sum(dim, True)


@composite(order=contiguous)
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike = None
) -> Tensor:
    """Returns log(softmax(x)) = x_i - log(sum_j exp(x_j)) along a dim, accurate for small probabilities.

    Args:
        dim, dtype: as for `softmax`.

    Raises:
        IndexError: no such dim.

    >>> F.log_softmax(mytorch.tensor([1.0, 1.0]), dim=0)
    tensor([-0.69315 -0.69315])
    """
    if not input.numel():
        return input.exp()
    shifted = input - input.detach().amax(dim, True)
    return shifted - shifted.exp().sum(dim, True).log()


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike = None) -> Tensor:
    """Returns softmax(-x): exp(-x_i) / sum_j exp(-x_j) along a dim; the arguments are those of `softmax`.

    >>> F.softmin(mytorch.tensor([1.0, 1.0, 2.0]), dim=0)
    tensor([0.42232 0.42232 0.15536])
    """
    return softmax(-input, dim, _stacklevel + 2, dtype)  # `takes_arrays` has a frame too


def _checker(name):
    def check(input, dim, stacklevel, dtype):
        if dim is None:
            dim = 0 if input.ndim in (0, 1, 3) else 1
            warnings.warn(f"{name}(): implicit choice of dim={dim}; say dim=", stacklevel=stacklevel)
        if dtype is not None:
            input = input.to(dtype)
        require_float(input.dtype, name)
        return input, canonical_dim(dim, input.ndim), stacklevel, None

    return check


softmax.check(_checker("softmax"))
log_softmax.check(_checker("log_softmax"))


@softmax.manual
def _softmax(x, dim, _stacklevel, dtype):
    y = shifted(x, dim)
    np.exp(y, out=y)
    y /= total(y, dim)

    def vjp(g):
        d = g * y
        d -= y * total(d, dim)
        return d

    return y, vjp


@log_softmax.manual
def _log_softmax(x, dim, _stacklevel, dtype):
    y = shifted(x, dim)
    y -= np.log(total(np.exp(y), dim))
    return y, lambda g: g - np.exp(y) * total(g, dim)


def shifted(x: RawArray, dim: int) -> RawArray:
    """Returns a new array in C order, x minus its maximum along the dim, so that exp cannot overflow."""
    if x.size == 0:
        return x.copy()
    largest = np.max(x, axis=dim if x.ndim else None, keepdims=True)
    return np.asarray(in_c_order(x) - largest, like=x)


def total(x: RawArray, dim: int) -> RawArray:
    """Returns the sum along a dim, with keepdims."""
    if dim == x.ndim - 1:
        return row_sums(x)
    return np.sum(x, axis=dim if x.ndim else None, keepdims=True)
