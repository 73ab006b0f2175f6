"""Pseudoinverses, ranks and least squares, from the singular values."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from ..backends.device import RawArray, is_readable
from ..core.op import as_raw, op, require_tensor
from ..core.tensor import Tensor, from_raw, raw_of
from .elementwise import abs, square
from .factors import eigh
from .linalg import matmul
from .linalg_checks import LinAlgError, check_dtype, check_matrices, lapack, refuse_complex, transposed
from .reduce import sum
from .shape import reshape, squeeze, unsqueeze
from .svd import svdvals

Tolerance: TypeAlias = float | Tensor | RawArray | None

__all__ = ["pinverse"]


class LeastSquares(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def threshold(largest: RawArray, shape: tuple[int, ...], atol: Tolerance, rtol: Tolerance
) -> RawArray:
    """The size up to which a singular value counts as 0: max(atol, rtol * largest).

    It is (..., 1) like `largest`, for tolerances that are numbers or (...). Without `rtol`
    that is the dtype's epsilon times the larger side, or 0 where there is an `atol` above 0.
    """
    if rtol is None:
        default = max(shape[-2:]) * float(np.finfo(largest.dtype).eps)
        rtol = default if atol is None else np.where(np.greater(atol, 0), 0.0, default)
    atol, rtol = (np.asarray(t, like=largest)[..., None] for t in (0.0 if atol is None else atol, rtol))
    return np.maximum(atol, rtol * largest)


@op(half=True)
def _pinv(x, atol, rtol, hermitian):
    check_matrices("pinv", x, square=hermitian)
    inverse = _pinv if isinstance(x, Tensor) else _hermitian_pinv if hermitian else _general_pinv
    p = inverse(x, atol, rtol, hermitian)
    return p, lambda g: _pinv_vjp(x, p, g)


def _general_pinv(x: RawArray, atol: Tolerance, rtol: Tolerance, _: bool) -> RawArray:
    u, s, vh = lapack("pinv", np.linalg.svd, x, full_matrices=False)
    if x.size == 0:
        return np.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype, like=x)
    keep = np.greater(s, threshold(s[..., :1], x.shape, atol, rtol))
    inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
    return np.matmul(np.conj(transposed(vh)) * inverse[..., None, :], np.conj(transposed(u)))


def _hermitian_pinv(x: RawArray, atol: Tolerance, rtol: Tolerance, _: bool) -> RawArray:
    values, vectors = lapack("pinv", np.linalg.eigh, x)
    if x.size == 0:
        return np.zeros_like(x)
    size = np.abs(values)
    keep = np.greater(size, threshold(np.max(size, axis=-1, keepdims=True), x.shape, atol, rtol))
    inverse = np.where(keep, 1 / np.where(keep, values, 1), 0).astype(values.dtype)
    return np.matmul(vectors * inverse[..., None, :], np.conj(transposed(vectors)))


def _pinv_vjp(x, p, g):
    """-Pᵀ g Pᵀ + (1 - A P) gᵀ P Pᵀ + Pᵀ P gᵀ (1 - P A), for matrices whose rank doesn't change near them.

    Source: Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems
    whose variables separate", 1973, https://doi.org/10.1137/0710036
    """
    refuse_complex("pinv", x)
    pt, gt = transposed(p), transposed(g)
    if x.shape[-2] <= x.shape[-1]:
        k = np.matmul(gt, p)
        kpt = np.matmul(k, pt)
        rest = kpt - np.matmul(np.matmul(x, p), kpt) + np.matmul(np.matmul(pt, p), gt - np.matmul(k, x))
        return rest - transposed(np.matmul(p, k))
    k = np.matmul(p, gt)
    ptk = np.matmul(pt, k)
    rest = np.matmul(np.matmul(gt - np.matmul(x, k), p), pt) + ptk - np.matmul(np.matmul(ptk, p), x)
    return rest - transposed(np.matmul(k, p))


def pinv(
    A: Tensor, rcond: Tolerance = None, hermitian: bool = False, *, atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Tensor:
    """The Moore-Penrose inverses of matrices, (..., m, n) to (..., n, m).

    Args:
        rcond: alias of `rtol`.
        hermitian: the matrices are symmetric; only their lower triangle is read.
        atol, rtol: singular values not above max(atol, rtol * largest) count as 0: numbers, or tensors (...).
            Default of `rtol`: max(m, n) times the dtype's epsilon, or 0 with an `atol` above 0.

    Raises:
        RuntimeError: `A` is of integers or half precision, or has fewer than two dims.
    """
    rtol = rcond if rtol is None else rtol
    require_tensor(A, "linalg.pinv")
    return _pinv(A, atol, rtol, bool(hermitian))


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Alias of `linalg.pinv`, with another default for the smallest singular value that counts."""
    return pinv(input, rcond)


def matrix_rank(
    A: Tensor, tol: Tolerance = None, hermitian: bool = False, *, atol: Tolerance = None,
    rtol: Tolerance = None,
) -> Tensor:
    """How many singular values of the matrices (..., m, n) are above max(atol, rtol * largest), int64.

    Args:
        tol: alias of `atol`, with rtol=0.
        hermitian: the matrices are symmetric; only their lower triangle is read.
        atol, rtol: as for `pinv`.

    Raises:
        RuntimeError: `A` is of integers or half precision, or has fewer than two dims.
    """
    require_tensor(A, "linalg.matrix_rank")
    check_matrices("matrix_rank", A, square=hermitian)
    if tol is not None:
        atol, rtol = tol, 0.0
    A = A.detach()
    s = raw_of(abs(eigh(A).eigenvalues) if hermitian else svdvals(A))
    if s.shape[-1] == 0:
        return from_raw(np.zeros(s.shape[:-1], np.int64, like=s))
    atol, rtol = (raw_of(t) if isinstance(t, Tensor) else t for t in (atol, rtol))
    least = threshold(np.max(s, axis=-1, keepdims=True), A.shape, atol, rtol)
    return from_raw(as_raw(np.sum(np.greater(s, least), axis=-1, dtype=np.int64)))


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """(solution, residuals, rank, singular_values): the X of the least |A X - B|², of these the smallest one.

    The solution is pinv(A) B. It has a gradient where the rank doesn't change nearby: where A has full rank.

    Args:
        A, B: (..., m, n) and (..., m, k), or vectors (..., m), whose leading dims broadcast.
        rcond: singular values not above rcond times the largest count as 0. Default: as for `pinv`.
        driver: "gelsy" (the default), "gels", "gelsd" or "gelss"; all compute the same here. The rank is
            empty for "gels", the singular values are for "gels" and "gelsy".

    Returns:
        solution (..., n, k); residuals (..., k), the sums of squares, for another driver than "gelsy" where
        m > n and all ranks are n, else empty; rank (...), int64; singular_values (..., min(m, n)).

    Raises:
        RuntimeError: the shapes don't fit; the dtypes differ, or are of integers or half precision; another
            driver.
        LinAlgError: a matrix doesn't have full rank, and the driver is "gels".
    """
    _check_lstsq(A, B, driver)
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = unsqueeze(B, -1) if vector else B
    solution, rank = matmul(pinv(A, rcond), right), matrix_rank(A, rtol=rcond)
    (m, n), has_rank = A.shape[-2:], rank == min(A.shape[-2:])
    full = not is_readable(raw_of(A)) or bool(has_rank.all())
    if driver == "gels" and not full:
        raise LinAlgError("linalg.lstsq: driver='gels' needs matrices of full rank")
    residuals = reshape(solution, -1)[:0]
    if m > n and full and driver not in (None, "gelsy"):
        residuals = sum(square(abs(matmul(A, solution) - right)), -2)
    return LeastSquares(
        squeeze(solution, -1) if vector else solution,
        residuals,
        rank if driver != "gels" else rank.new_zeros(0),
        svdvals(A.detach()) if driver in ("gelsd", "gelss") else A.new_zeros(0),
    )


def _check_lstsq(a: Tensor, b: Tensor, driver: str | None) -> None:
    for x in (a, b):
        require_tensor(x, "linalg.lstsq")
    check_matrices("lstsq", a)
    check_dtype("lstsq", b)
    if a.dtype != b.dtype:
        raise RuntimeError(f"linalg.lstsq: Expected one dtype for A and B, got {a.dtype} and {b.dtype}")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"linalg.lstsq: driver is one of gels, gelsy, gelsd and gelss, got {driver!r}")
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    rows = b.shape[-1 if vector else -2] if b.ndim else 0
    if rows != a.shape[-2]:
        raise RuntimeError(
            f"linalg.lstsq: A and B need as many rows, got shapes {list(a.shape)} and {list(b.shape)}"
        )
