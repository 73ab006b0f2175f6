"""Integrals of samples by the trapezoidal rule."""

from __future__ import annotations

import numpy as np

from ..core.op import require_tensor
from ..core.tensor import Tensor
from .create import zeros
from .dims import canonical_dim
from .index import narrow, select
from .rearrange import diff
from .reduce import sum
from .scan import cumsum
from .shape import reshape

__all__ = ["trapezoid", "trapz", "cumulative_trapezoid"]


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Returns the integral along a dim by the trapezoidal rule, the sum of (y[i] + y[i+1]) / 2 * dx[i].

    Args:
        y: samples.
        x: where they were taken, a vector or a tensor that broadcasts to y's shape; dx[i] is x[i+1] - x[i].
        dx: the distance between samples, without `x`.

    Raises:
        RuntimeError: bools; a vector `x` that hasn't one element a sample.
        IndexError: no such dim.

    >>> mytorch.trapezoid(mytorch.tensor([1.0, 2.0, 3.0]))
    tensor(4.00000)
    """
    dim = _checked("trapezoid", y, x, dim)
    if not y.shape[dim]:
        return zeros(_without(tuple(y.shape), dim), dtype=y.dtype, device=y.device)
    if x is None:
        return (sum(y, dim) - (select(y, dim, 0) + select(y, dim, -1)) * 0.5) * dx
    return sum(_steps("trapezoid", y, x, dim) * _pairs(y, dim), dim) / 2


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Returns the integrals from the first sample to each other one by the trapezoidal rule.

    The arguments and errors are those of `trapezoid`; the dim has one element less.

    >>> mytorch.cumulative_trapezoid(mytorch.tensor([1.0, 2.0, 3.0]))
    tensor([1.50000 4.00000])
    """
    dim = _checked("cumulative_trapezoid", y, x, dim)
    if x is None:
        return cumsum(dx / 2 * _pairs(y, dim), dim)
    return cumsum(_steps("cumulative_trapezoid", y, x, dim) * _pairs(y, dim), dim) / 2


trapz = trapezoid


def _checked(name: str, y: Tensor, x: Tensor | None, dim: int) -> int:
    for tensor in (y,) if x is None else (y, x):
        require_tensor(tensor, name)
        if tensor.dtype == np.bool_:
            raise RuntimeError(f"{name}(): y and x must be numbers, got {tensor.dtype}")
    if not y.ndim:
        raise IndexError(f"{name}(): expected y of 1 or more dims, got 0")
    return canonical_dim(dim, y.ndim)


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]


def _pairs(y: Tensor, dim: int) -> Tensor:
    """Returns the sums of neighbours."""
    count = max(y.shape[dim] - 1, 0)
    return narrow(y, dim, 0, count) + narrow(y, dim, y.shape[dim] - count, count)


def _steps(name: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns the differences of neighbours in `x`, in a shape that broadcasts with y's."""
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(
                f"{name}(): there must be one x for each sample, got {x.shape[0]} for {y.shape[dim]}"
            )
        return reshape(diff(x), (-1, *[1] * (y.ndim - 1 - dim)))
    return diff(reshape(x, (*[1] * (y.ndim - x.ndim), *x.shape)), dim=dim)
