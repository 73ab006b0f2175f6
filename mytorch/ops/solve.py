"""Inverses of square matrices, solutions of linear systems, and determinants.

Source: M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
automatic differentiation", 2008, https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..backends.device import has_values
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .broadcast import expand
from .create import eye
from .diagonals import tril, triu
from .linalg_checks import check_dtype, check_matrices, lapack, refuse_complex, transposed
from .mask import where
from .shape import squeeze, transpose, unsqueeze

__all__ = ["inverse", "det", "slogdet", "logdet"]


class SignLogAbsDet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


@op(half=True)
def inv(x):
    """The inverses of the matrices in the last two dims, (..., n, n).

    Raises:
        RuntimeError: the matrices aren't square, or of integers or half precision.
        LinAlgError: one of them is singular.
    """
    check_matrices("inv", x, square=True)
    y = lapack("inv", np.linalg.inv, x)

    def vjp(g):
        yt = transposed(y)
        return -np.matmul(np.matmul(yt, g), yt)

    return y, vjp


def inverse(input: Tensor) -> Tensor:
    """Alias of `linalg.inv`.

    >>> mytorch.inverse(mytorch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.50000 0.00000]
            [0.00000 0.25000]])
    """
    return inv(input)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X of A X = B.

    Args:
        A: (..., n, n).
        B: (..., n, k), whose leading dims broadcast with those of `A`; or vectors (..., n) with just the
            leading dims of `A`, or (n,).
        left: False for the X of X A = B, with B (..., k, n).

    Raises:
        RuntimeError: the shapes don't fit; the dtypes differ, or are integers or half precision; vectors
            with left=False.
        LinAlgError: a matrix is singular.
    """
    for x in (A, B):
        require_tensor(x, "linalg.solve")
    check_matrices("solve", A, square=True)
    check_dtype("solve", B)
    if A.dtype != B.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found {A.dtype} and {B.dtype}"
        )
    if B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]):
        if not left:
            raise RuntimeError("linalg.solve: with left=False B must be of matrices, not vectors")
        return squeeze(_broadcast_solve(A, unsqueeze(B, -1)), -1)
    if left:
        return _broadcast_solve(A, B)
    return transpose(_broadcast_solve(transpose(A, -1, -2), transpose(B, -1, -2)), -1, -2)


def _broadcast_solve(a: Tensor, b: Tensor) -> Tensor:
    if b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: "
            f"{list(a.shape)} and {list(b.shape)}"
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise RuntimeError(
            f"linalg.solve: the batches of A and B don't broadcast: {list(a.shape)} and {list(b.shape)}"
        ) from None
    a, b = (x if x.shape[:-2] == batch else expand(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return solve_matrices(a, b)


@op(half=True)
def solve_matrices(a, b):
    """The X of A X = B for matrices of one batch: (..., n, n) and (..., n, k)."""
    x = lapack("solve", np.linalg.solve, a, b)

    def vjp(g):
        gb = solve_matrices.dual(transposed(a), g)
        return -np.matmul(gb, transposed(x)), gb

    return x, vjp


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The X of A X = B for triangular A, of which only one triangle is read.

    Args:
        A, B: (..., n, n) and (..., n, k), which broadcast.
        upper: which triangle counts.
        left: False for the X of X A = B, with B (..., k, n).
        unitriangular: take the diagonal to be 1.

    Raises:
        RuntimeError: as `solve`.
        LinAlgError: there is a 0 on the diagonal; PyTorch divides by it.
    """
    check_matrices("solve_triangular", A, square=True)
    if B.ndim < 2:
        raise RuntimeError("linalg.solve_triangular: B must have at least 2 dimensions")
    cut, beside = (triu, 1) if upper else (tril, -1)
    A = cut(A, beside) + eye(A.shape[-1], dtype=A.dtype, device=A.device) if unitriangular else cut(A)
    if left:
        return _broadcast_solve(A, B)
    return transpose(_broadcast_solve(transpose(A, -1, -2), transpose(B, -1, -2)), -1, -2)


@op(half=True)
def det(x):
    """The determinants of the matrices in the last two dims, (..., n, n) to (...).

    The gradient is the matrix of cofactors, also where the determinant is 0.

    Raises:
        RuntimeError: the matrices aren't square, or of integers or half precision.

    >>> mytorch.det(mytorch.tensor([[2.0, 1.0], [0.0, 3.0]]))
    tensor(6.00000)
    """
    check_matrices("det", x, square=True)
    y = np.linalg.det(x)
    return y, lambda g: g[..., None, None] * _cofactors(x, y)


def _cofactors(x, y):
    """det(A) A⁻ᵀ; of singular matrices from A = U diag(s) Vᴴ: det(U Vᴴ) conj(U) diag(∏_{j≠i} s_j) conj(Vᴴ)"""
    if has_values(y) and np.all(np.not_equal(y, 0)):  # a program can't know, and gets the other one
        return y[..., None, None] * transposed(np.linalg.inv(x))
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    itself = np.tril(np.triu(np.ones_like(x))) == 1
    others = np.prod(np.where(itself, 1, s[..., None, :]), axis=-1)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return np.matmul(np.conj(u) * (sign[..., None] * others)[..., None, :], np.conj(vh))


@op(outputs=True, half=True)
def _slogdet(x):
    check_matrices("slogdet", x, square=True)
    sign, logabs = np.linalg.slogdet(x)

    def vjp(grads):
        refuse_complex("slogdet", x)
        g = grads[1]
        return None if g is None else g[..., None, None] * transposed(np.linalg.inv(x))

    return (sign, logabs), vjp


def slogdet(input: Tensor) -> SignLogAbsDet:
    """(sign, logabsdet) with determinant sign * exp(logabsdet): for large matrices it would overflow.

    Args:
        input: (..., n, n).

    Raises:
        RuntimeError: the matrices aren't square, or of integers or half precision.
    """
    return SignLogAbsDet(*_slogdet(input))


def logdet(input: Tensor) -> Tensor:
    """The logarithms of the determinants; NaN where one is negative."""
    sign, logabs = slogdet(input)
    return where(sign < 0, math.nan, logabs)
