"""Factors of matrices: Cholesky, QR, and the eigenvectors of symmetric matrices.

Source: M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
automatic differentiation", 2008, https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.op import op
from ..core.tensor import Tensor
from .linalg_checks import check_matrices, lapack, refuse_complex, transposed
from .shape import transpose
from .solve import solve_matrices

__all__ = ["cholesky", "qr"]


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class Eigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


@op(half=True)
def lower_cholesky(x):
    """The lower triangular L with L Lᵀ = x, read from the lower triangle of x.

    Source of the gradient: I. Murray, "Differentiation of the Cholesky decomposition", 2016,
    https://arxiv.org/abs/1602.07527
    """
    check_matrices("cholesky", x, square=True)
    y = lapack("cholesky", np.linalg.cholesky, x)

    def vjp(g):
        refuse_complex("cholesky", x)
        yt = transposed(y)
        inner = np.matmul(yt, g)
        inner = (np.tril(inner) + np.tril(inner, -1)) / 2
        half = solve_matrices.dual(yt, inner)
        whole = solve_matrices.dual(yt, transposed(half))
        return (whole + transposed(whole)) / 2

    return y, vjp


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The lower triangular L with L Lᵀ = input, for positive-definite matrices (..., n, n).

    Args:
        upper: return Lᵀ, read from the upper triangle.

    Raises:
        RuntimeError: the matrices aren't square, or of integers or half precision.
        LinAlgError: one of them is not positive-definite.

    >>> mytorch.cholesky(mytorch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2.00000 0.00000]
            [1.00000 2.00000]])
    """
    if not upper:
        return lower_cholesky(input)
    check_matrices("cholesky", input, square=True)
    refuse_complex("cholesky(upper=True)", input)
    return transpose(lower_cholesky(transpose(input, -1, -2)), -1, -2)


@op(outputs=True, half=True)
def reduced_qr(x):
    """Q (..., m, k) with orthonormal columns and R (..., k, n), upper triangular; k = min(m, n)."""
    check_matrices("qr", x)
    q, r = lapack("qr", np.linalg.qr, x)
    return (q, r), lambda grads: _qr_vjp(x, q, r, *grads)


def _qr_vjp(x, q, r, gq, gr):
    """The gradient, from the first m columns X and the rest Y of a wide x, where Q R = X and the rest of R
    is Qᵀ Y."""
    refuse_complex("qr", x)
    gq = np.zeros_like(q) if gq is None else gq
    gr = np.zeros_like(r) if gr is None else gr
    m, n = x.shape[-2:]
    if m >= n:
        return _tall_qr_vjp(q, r, gq, gr)
    rest = gr[..., m:]
    gq = gq + np.matmul(x[..., m:], transposed(rest))
    first = _tall_qr_vjp(q, r[..., :m], gq, gr[..., :m])
    return np.concatenate([first, np.matmul(q, rest)], axis=-1)


def _tall_qr_vjp(q, r, gq, gr):
    """(gQ + Q M) R⁻ᵀ, where M is symmetric and has the upper triangle of gR Rᵀ - Qᵀ gQ.

    Source: Walter and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010,
    https://arxiv.org/abs/1001.1654
    """
    inner = np.matmul(gr, transposed(r)) - np.matmul(transposed(q), gq)
    symmetric = np.triu(inner) + transposed(np.triu(inner, 1))
    whole = gq + np.matmul(q, symmetric)
    return transposed(solve_matrices.dual(r, transposed(whole)))


@op(outputs=True, half=True)
def _other_qr(x, mode):
    check_matrices("qr", x)
    if mode == "r":
        r = lapack("qr", np.linalg.qr, x, mode="r")
        q = np.zeros((0,), x.dtype, like=x)
    else:
        q, r = lapack("qr", np.linalg.qr, x, mode="complete")

    def vjp(grads):
        reason = "Q is not computed with mode='r'" if mode == "r" else "mode='complete' and nrows > ncols"
        raise RuntimeError(f"linalg.qr: The QR decomposition is not differentiable: {reason}")

    return (q, r), vjp


def linalg_qr(A: Tensor, mode: str = "reduced") -> QR:
    """(Q, R) with A = Q R, the columns of Q orthonormal and R upper triangular.

    Args:
        A: (..., m, n); let k = min(m, n). For a gradient its first k columns must be independent.
        mode: "reduced": Q (..., m, k) and R (..., k, n); "complete": (..., m, m) and (..., m, n), without a
            gradient if m > n; "r": as reduced, but Q is empty and there is no gradient.

    Raises:
        RuntimeError: another mode; a dtype of integers or half precision; no matrices.
    """
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode {mode!r} but expected one of 'reduced', 'r', or 'complete'"
        )
    check_matrices("qr", A)
    if mode == "reduced" or (mode == "complete" and A.shape[-2] <= A.shape[-1]):
        return QR(*reduced_qr(A))
    return QR(*_other_qr(A, mode))


linalg_qr.__name__ = linalg_qr.__qualname__ = "qr"


def qr(input: Tensor, some: bool = True) -> QR:
    """`linalg.qr` in mode "reduced", or in "complete" if not `some`."""
    return linalg_qr(input, "reduced" if some else "complete")


@op(outputs=True, half=True)
def _eigh(x, uplo):
    check_matrices("eigh", x, square=True)
    values, vectors = lapack("eigh", np.linalg.eigh, x, UPLO=uplo)
    return (values, vectors), (lambda grads: _eigh_vjp(x, values, vectors, *grads))


def _eigh_vjp(x, values, vectors, gvalues=None, gvectors=None):
    """V (diag(gλ) + (P - Pᵀ) ∘ F / 2) Vᵀ, where P = Vᵀ gV and F_ij = 1 / (λ_j - λ_i), or 0 for equal ones."""
    refuse_complex("eigh", x)
    vt, inner = transposed(vectors), 0
    if gvectors is not None:
        apart = values[..., None, :] - values[..., None]
        equal = np.equal(apart, 0)
        f = np.where(equal, 0, 0.5 / np.where(equal, 1, apart))
        p = np.matmul(vt, gvectors)
        inner = np.matmul(np.matmul(vectors, f * (p - transposed(p))), vt)
    if gvalues is not None:
        inner = inner + np.matmul(vectors * gvalues[..., None, :], vt)
    return inner


def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """The eigenvalues (..., n), ascending, and eigenvectors, columns of (..., n, n), of symmetric matrices.

    The gradient with respect to the vectors exists only where the eigenvalues differ.

    Args:
        A: (..., n, n), symmetric (complex: Hermitian).
        UPLO: which triangle is read, "L" or "U".

    Raises:
        RuntimeError: the matrices aren't square, or of integers or half precision; another `UPLO`.
        LinAlgError: no result was found.
    """
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO!r}")
    return Eigh(*_eigh(A, UPLO.upper()))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues (..., n) of symmetric matrices, ascending; see `eigh`."""
    return eigh(A, UPLO).eigenvalues
