"""Variance and standard deviation."""

from __future__ import annotations

import numpy as np

from ..backends.device import RawArray
from ..core.op import op
from ..core.tensor import Tensor
from .dims import Dims, count, expand_reduced, numpy_names, reduction_axes
from .reduce import float_dtype, mean, total

__all__ = ["var", "std", "var_mean", "std_mean"]


@numpy_names
def var(x: Tensor, dim=None, unbiased: bool | None = None, keepdim=False, *, correction=None) -> Tensor:
    """The variance, sum (x - mean)^2 / (n - correction), over one dim, several or all.

    Args:
        correction: what is taken off the number of elements n; by default 1, or 0 if `unbiased` is False.

    Raises:
        RuntimeError: `x` isn't floating-point.

    >>> mytorch.tensor([1.0, 2.0, 3.0]).var()
    tensor(1.00000)
    """
    return _with_correction(_var, x, dim, unbiased, keepdim, correction)


@numpy_names
def std(x: Tensor, dim=None, unbiased: bool | None = None, keepdim=False, *, correction=None) -> Tensor:
    """The standard deviation, the root of `var`; where it is 0 its gradient is 0.

    >>> mytorch.tensor([1.0, 2.0, 3.0]).std()
    tensor(1.00000)
    >>> mytorch.tensor([1.0, 2.0, 3.0]).std(correction=0)
    tensor(0.81650)
    """
    return _with_correction(_std, x, dim, unbiased, keepdim, correction)


@numpy_names
def var_mean(x: Tensor, dim=None, unbiased=None, keepdim=False, *, correction=None) -> tuple[Tensor, Tensor]:
    """(var, mean)

    >>> mytorch.var_mean(mytorch.tensor([1.0, 2.0, 3.0]))
    (tensor(1.00000), tensor(2.00000))
    """
    every = None if isinstance(dim, bool) else dim
    return var(x, dim, unbiased, keepdim, correction=correction), mean(x, every, keepdim)


@numpy_names
def std_mean(x: Tensor, dim=None, unbiased=None, keepdim=False, *, correction=None) -> tuple[Tensor, Tensor]:
    """(std, mean)

    >>> mytorch.std_mean(mytorch.tensor([1.0, 2.0, 3.0]))
    (tensor(1.00000), tensor(2.00000))
    """
    every = None if isinstance(dim, bool) else dim
    return std(x, dim, unbiased, keepdim, correction=correction), mean(x, every, keepdim)


def _with_correction(op, x, dim, unbiased, keepdim, correction):
    if isinstance(dim, bool):  # x.var(False)
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"expected unbiased or correction, got both: {unbiased} and {correction}")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return op(x, dim=dim, correction=correction, keepdim=keepdim)


@op
def _var(x, *, dim, correction, keepdim):
    return _variance("var", x, dim, correction, keepdim)


@op
def _std(x, *, dim, correction, keepdim):
    y, vjp = _variance("std", x, dim, correction, keepdim)
    y = np.sqrt(y)
    return y, lambda g: vjp(np.where(np.equal(y, 0), 0, g / (2 * y)))


def _variance(name: str, x: RawArray, dim: Dims, correction: float, keepdim: bool) -> tuple:
    """The variance in full precision, and the function that takes its gradient back to `x`."""
    float_dtype(name, x)
    axes = reduction_axes(dim, x.ndim)
    n = count(x.shape, axes)
    freedom = max(n - correction, 0)
    center = total(x, axes, True) / n

    def vjp(g):
        return (x - center) * (2 * expand_reduced(g, axes, keepdim) / freedom)

    return total(np.square(x - center), axes, keepdim) / freedom, vjp
