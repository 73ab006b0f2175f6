"""Products of vectors, matrices and batches of matrices."""

from __future__ import annotations

import numpy as np

from ..backends.blas import product, rows
from ..backends.device import RawArray
from ..core.grad_mode import _state
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .autocast import autocasts, in_half, in_half_on_a_gpu, in_widest
from .elementwise import mul
from .shape import reshape

__all__ = ["matmul", "mm", "bmm", "mv", "dot", "vdot", "outer", "ger", "kron"]


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, z[..., i, j] = sum_k x[..., i, k] * y[..., k, j].

    Args:
        input: (..., m, k); (k,) counts as one row, and the result lacks that dim.
        other: (..., k, n), of the same dtype; (k,) counts as one column, and the result lacks that dim. The
            leading dims of the two broadcast.

    Raises:
        RuntimeError: the shapes don't fit, or the dtypes differ.
        NotImplementedError: the dtype is bool.

    >>> mytorch.tensor([[1, 2], [3, 4]]) @ mytorch.tensor([1, 1])
    tensor([3 7])
    >>> mytorch.ones(5, 2, 3).matmul(mytorch.ones(3, 4)).shape
    Size([5, 2, 4])
    """
    if _state.autocast is not None:
        input, other = in_half((input, other))
    return _matmul(input, other)


@op(half=True)
def _matmul(x, y):
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


_matmul.__name__ = "matmul"


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices; nothing is broadcast.

    >>> mytorch.mm(mytorch.ones(2, 3), mytorch.ones(3, 4)).shape
    Size([2, 4])
    """
    expect_dims("mm", input, 2, mat2, 2)
    return matmul(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of as many matrices: (b, m, k) and (b, k, n); nothing is broadcast.

    >>> mytorch.bmm(mytorch.ones(5, 2, 3), mytorch.ones(5, 3, 4)).shape
    Size([5, 2, 4])
    """
    expect_dims("bmm", input, 3, mat2, 3)
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(
            f"bmm(): expected batches of one size, got {tuple(input.shape)} and {tuple(mat2.shape)}"
        )
    return matmul(input, mat2)


@autocasts(in_half_on_a_gpu)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector.

    >>> mytorch.ones(2, 3).mv(mytorch.ones(3))
    tensor([3.00000 3.00000])
    """
    expect_dims("mv", input, 2, vec, 1)
    return _matmul(input, vec)


@autocasts(in_widest)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The inner product of two vectors, sum_i x[i] * y[i].

    >>> mytorch.tensor([1, 2]).dot(mytorch.tensor([3, 4]))
    tensor(11)
    """
    expect_dims("dot", input, 1, tensor, 1)
    return _matmul(input, tensor)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product of two real vectors: `dot`.

    >>> mytorch.vdot(mytorch.tensor([1, 2]), mytorch.tensor([3, 4]))
    tensor(11)
    """
    expect_dims("vdot", input, 1, other, 1)
    return _matmul(input, other)


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The outer product of two vectors, z[i, j] = x[i] * y[j], in the dtype of their promotion.

    >>> mytorch.tensor([1, 2]).outer(mytorch.tensor([3, 4]))
    tensor([[3 4]
            [6 8]])
    """
    expect_dims("outer", input, 1, vec2, 1)
    return _outer(input, vec2)


@op(promote="common", half="float16")
def _outer(x, y):
    return x[:, None] * y, (
        lambda g: product(g, y[:, None])[:, 0],
        lambda g: product(x[None, :], g)[0],
    )


_outer.__name__ = "outer"


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """Alias of `outer`."""
    return outer(input, vec2)


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: in place of each x[i, …] stands x[i, …] * other.

    Args:
        input, other: of any dims, those with fewer get leading ones: (m, n) and (p, q) make (m p, n q).

    >>> mytorch.kron(mytorch.eye(2), mytorch.ones(1, 2))
    tensor([[1.00000 1.00000 0.00000 0.00000]
            [0.00000 0.00000 1.00000 1.00000]])
    """
    require_tensor(input, "kron")
    require_tensor(other, "kron")
    ndim = max(input.ndim, other.ndim)
    outside = (1,) * (ndim - input.ndim) + tuple(input.shape)
    inside = (1,) * (ndim - other.ndim) + tuple(other.shape)
    z = mul(
        reshape(input, [n for size in outside for n in (size, 1)]),
        reshape(other, [n for size in inside for n in (1, size)]),
    )
    return reshape(z, [a * b for a, b in zip(outside, inside, strict=True)])


def check_dtypes(name: str, *arrays: RawArray) -> None:
    """Raises if these can't be multiplied and summed: nothing is cast silently."""
    for other in arrays[1:]:
        if other.dtype != arrays[0].dtype:
            raise RuntimeError(f"{name}(): expected one dtype, got {arrays[0].dtype} and {other.dtype}")
    if arrays[0].dtype == bool:
        raise NotImplementedError(f"{name}(): not implemented for bool tensors")


def expect_dims(name: str, x: RawArray, x_ndim: int, y: RawArray, y_ndim: int) -> None:
    """Raises unless these are tensors of these numbers of dims."""
    got = tuple(getattr(a, "ndim", type(a).__name__) for a in (x, y))
    if any(isinstance(n, str) for n in got):
        raise TypeError(f"{name}(): expected two tensors, got {got}")
    if got != (x_ndim, y_ndim):
        raise RuntimeError(
            f"{name}(): expected {x_ndim}-D and {y_ndim}-D tensors, got {tuple(x.shape)} and {tuple(y.shape)}"
        )


def _check(x: RawArray, y: RawArray) -> None:
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
