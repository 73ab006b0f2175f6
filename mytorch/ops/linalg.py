"""Products of vectors, matrices and batches of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.blas import product, rows
from ..tensor import Tensor
from .op import op

__all__ = ["matmul", "mm", "bmm", "mv", "dot", "outer"]


@op
def matmul(x, y):
    """The matrix product, z[..., i, j] = sum_k x[..., i, k] * y[..., k, j].

    Args:
        x: (..., m, k); (k,) counts as one row, and the result lacks that dim.
        y: (..., k, n), of the same dtype; (k,) counts as one column, and the result lacks that dim. The
            leading dims of the two broadcast.

    Raises:
        RuntimeError: the shapes don't fit, or the dtypes differ or are bool.
    """
    _check(x, y)
    row, column = x.ndim == 1, y.ndim == 1
    if row:
        x = x[None, :]
    if column:
        y = y[:, None]
    z = product(x, y)
    shape, y_ndim = z.shape, y.ndim
    if row or column:
        z = np.reshape(z, shape[:-2] + (() if row else shape[-2:-1]) + (() if column else shape[-1:]))

    def grad_x(g):  # the one row of a vector is summed away by the engine
        return product(np.reshape(g, shape), np.swapaxes(y, -1, -2))

    def grad_y(g):
        g = np.reshape(g, shape)
        h = product(rows(x).T, rows(g)) if y_ndim == 2 else product(np.swapaxes(x, -1, -2), g)
        return h[..., 0] if column else h

    return z, (grad_x, grad_y)


def mm(x: Tensor, y: Tensor) -> Tensor:
    """The product of two matrices; nothing is broadcast."""
    _expect("mm", x, y, 2, 2)
    return matmul(x, y)


def bmm(x: Tensor, y: Tensor) -> Tensor:
    """The products of two batches of as many matrices: (b, m, k) and (b, k, n); nothing is broadcast."""
    _expect("bmm", x, y, 3, 3)
    if x.shape[0] != y.shape[0]:
        raise RuntimeError(f"bmm(): expected batches of one size, got {tuple(x.shape)} and {tuple(y.shape)}")
    return matmul(x, y)


def mv(x: Tensor, y: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    _expect("mv", x, y, 2, 1)
    return matmul(x, y)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """The inner product of two vectors, sum_i x[i] * y[i]."""
    _expect("dot", x, y, 1, 1)
    return matmul(x, y)


@op(promote="common")
def outer(x, y):
    """The outer product of two vectors, z[i, j] = x[i] * y[j]."""
    _expect("outer", x, y, 1, 1)
    return x[:, None] * y, (
        lambda g: product(g, y[:, None])[:, 0],
        lambda g: product(x[None, :], g)[0],
    )


def check_dtypes(name: str, *arrays: Any) -> None:
    """Raise if these can't be multiplied and summed: nothing is cast silently."""
    for other in arrays[1:]:
        if other.dtype != arrays[0].dtype:
            raise RuntimeError(f"{name}(): expected one dtype, got {arrays[0].dtype} and {other.dtype}")
    if arrays[0].dtype == bool:
        raise NotImplementedError(f"{name}(): not implemented for bool tensors")


def _check(x: Any, y: Any) -> None:
    if not (hasattr(x, "ndim") and hasattr(y, "ndim")):
        raise TypeError(f"matmul(): expected two tensors, got {type(x).__name__} and {type(y).__name__}")
    if not (x.ndim and y.ndim):
        raise RuntimeError(f"matmul(): expected at least 1 dimension, got shapes {x.shape} and {y.shape}")
    check_dtypes("matmul", x, y)
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise RuntimeError(
            f"matmul(): shapes {x.shape} and {y.shape} cannot be multiplied: {x.shape[-1]} is not {inner}"
        )
    if x.ndim > 2 and y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        try:
            np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        except ValueError:
            raise RuntimeError(
                f"matmul(): shapes {x.shape} and {y.shape} cannot be multiplied: the batches differ"
            ) from None


def _expect(name: str, x: Any, y: Any, x_ndim: int, y_ndim: int) -> None:
    got = tuple(getattr(a, "ndim", type(a).__name__) for a in (x, y))
    if any(isinstance(n, str) for n in got):
        raise TypeError(f"{name}(): expected two tensors, got {got}")
    if got != (x_ndim, y_ndim):
        raise RuntimeError(
            f"{name}(): expected {x_ndim}-D and {y_ndim}-D tensors, got {tuple(x.shape)} and {tuple(y.shape)}"
        )
