"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..backends.device import RawArray
from ..backends.dtypes import DTypeLike
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .dims import Dims, canonical_dims, count, expand_reduced, numpy_names, reduction_axes, squeeze_reduced
from .minmax import amax, amin
from .reduce import cast, float_dtype, sum, total
from .shape import movedim, squeeze, unsqueeze
from .svd import svdvals

__all__ = ["norm"]


@numpy_names
def norm(
    x: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: DTypeLike = None
) -> Tensor:
    """A norm of vectors, over one dim, several or all; or one of matrices.

    Args:
        p: a number: `linalg.vector_norm` of this order; "fro" or None: of order 2; "nuc": the nuclear norm
            `linalg.matrix_norm`, over two dims, all by default.

    >>> mytorch.tensor([3.0, 4.0]).norm()
    tensor(5.00000)
    """
    if not isinstance(p, str):
        return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype=dtype)
    if p == "fro" and (not isinstance(dim, Iterable) or len(dim) <= 2):
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    return matrix_norm(x, p, tuple(range(x.ndim)) if dim is None else dim, keepdim, dtype=dtype)


@numpy_names
def vector_norm(x: Tensor, ord: float = 2, dim=None, keepdim: bool = False, *, dtype=None) -> Tensor:
    """The norm of vectors, (sum |x|^ord)^(1/ord), over one dim, several or all.

    Args:
        ord: a number; inf and -inf for the largest and smallest |x|, 0 for how many are not 0. Where the norm
            is 0 its gradient is 0; several largest elements share it evenly.
        dtype: cast `x` to it first.

    Raises:
        RuntimeError: `x` isn't floating-point; `dtype` is narrower; no elements, where the norm needs one.
        TypeError: another `ord`.
    """
    if not isinstance(ord, (int, float)):
        raise TypeError(f"vector_norm(): the order is a number, got {ord!r}")
    require_tensor(x, "vector_norm")
    float_dtype("norm", x)
    if float_dtype("norm", x, dtype).itemsize < x.dtype.itemsize:
        raise RuntimeError(f"norm(): dtype {dtype} is narrower than that of the tensor, {x.dtype}")
    return _vector_norm(x, ord=ord, dim=dim, keepdim=keepdim, dtype=dtype)


@numpy_names
def matrix_norm(
    x: Tensor, ord: float | str = "fro", dim=(-2, -1), keepdim: bool = False, *, dtype=None
) -> Tensor:
    """A norm of the matrices in two dims of `x`.

    Args:
        ord: "fro": the root of the sum of squares; "nuc": the sum of the singular values; 2 and -2: the
            largest and smallest of them; 1 and -1: the largest and smallest column sum of |x|; inf and -inf:
            row sum.

    Raises:
        RuntimeError: `x` isn't floating-point; not two dims; another `ord`.
    """
    require_tensor(x, "matrix_norm")
    dims = tuple(dim) if isinstance(dim, Iterable) else (dim,)
    if x.ndim < 2 or len(dims) != 2:
        raise RuntimeError(
            f"matrix_norm(): expected two dims of a tensor of shape {list(x.shape)}, got dim={dim}"
        )
    row, column = (canonical_dims(d, x.ndim)[0] for d in dims)
    canonical_dims(dims, x.ndim)  # they must differ
    if ord == "fro":
        return vector_norm(x, 2, dims, keepdim, dtype=dtype)
    x = x if dtype is None else x.to(float_dtype("matrix_norm", x, dtype))
    largest = amax if x.shape[row] and x.shape[column] else sum  # of nothing it is 0
    if ord in ("nuc", 2, -2):
        s = svdvals(movedim(x, (row, column), (-2, -1)))
        y = (sum if ord == "nuc" else largest if ord > 0 else amin)(s, -1)
        return y if not keepdim else unsqueeze(unsqueeze(y, min(row, column)), max(row, column))
    if ord not in (1, -1, math.inf, -math.inf):
        raise RuntimeError(
            f"matrix_norm(): order {ord!r} is not supported; there are 'fro', 'nuc', ±1, ±2, ±inf"
        )
    dim_of_sums, dim_of_extremes = (row, column) if abs(ord) == 1 else (column, row)
    y = (largest if ord > 0 else amin)(vector_norm(x, 1, dim_of_sums, True), dim_of_extremes, True)
    return y if keepdim else squeeze(y, dims)


@op
def _vector_norm(x, *, ord, dim, keepdim, dtype):
    axes = reduction_axes(dim, x.ndim)
    if (ord < 0 or ord == math.inf) and count(x.shape, axes) == 0:
        raise RuntimeError(
            f"norm(): the {ord}-norm of no elements is not defined: shape {list(x.shape)}, dim {dim}"
        )
    x = cast(x, float_dtype("norm", x, dtype))
    y = _norm_keepdim(x, ord, axes)

    def vjp(g):
        return expand_reduced(g, axes, keepdim) * _norm_gradient(x, y, ord, axes)

    return squeeze_reduced(y, axes, keepdim), vjp


def _norm_keepdim(x: RawArray, p: float, axes: tuple[int, ...] | None) -> RawArray:
    """The norm, with the reduced dims kept as 1."""
    if p == 2:
        return np.sqrt(total(np.square(x), axes, True))
    size = np.abs(x)
    if p == 1:
        return total(size, axes, True)
    if p == 0:
        return total(np.not_equal(x, 0), axes, True, x.dtype)
    if math.isinf(p):
        return (np.max if p > 0 else np.min)(size, axis=axes, keepdims=True)
    return total(size**p, axes, True) ** (1 / p)


def _norm_gradient(x: RawArray, y: RawArray, p: float, axes: tuple[int, ...] | None) -> RawArray:
    """d norm / dx = sign(x) (|x| / norm)^(p - 1)"""
    if p == 2:
        return x / np.where(np.equal(y, 0), 1, y)
    if p == 0:
        return np.zeros_like(x)
    sign = np.where(np.equal(x, x), np.sign(x), 0)  # 0 for NaN
    if p == 1:
        return sign
    if math.isinf(p):
        ties = np.equal(np.abs(x), y) | np.not_equal(x, x)
        return sign * ties / total(ties, axes, True, x.dtype)
    return np.where(np.equal(x, 0), 0, np.sign(x) * (np.abs(x) / y) ** (p - 1))
