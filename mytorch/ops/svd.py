"""The singular value decomposition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.op import op
from ..core.tensor import Tensor
from .linalg_checks import LinAlgError, check_matrices, lapack, refuse_complex
from .shape import transpose


class USVh(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class USV(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


def svdvals(x: Tensor) -> Tensor:
    """The singular values of the matrices in the last two dims, (..., m, n) to (..., min(m, n)), descending.

    Raises:
        RuntimeError: `x` is of integers or half precision; it has fewer than two dims; no result was found.
    """
    return svd(x)[1]


@op(outputs=True, half=True)
def svd(x, full_matrices=False):
    """(U, s, Vᵀ) with x = U diag(s) Vᵀ, U (..., m, k), s (..., k), Vᵀ (..., k, n), k = min(m, n).

    With `full_matrices`, U is (..., m, m) and Vᵀ (..., n, n). The gradient with respect to U and V exists
    only where the singular values differ, and there is none of the columns and rows beyond the first k.
    Source: J. Townsend, "Differentiating the singular value decomposition", 2016,
    https://j-towns.github.io/papers/svd-derivative.pdf
    """
    check_matrices("svd", x)
    try:
        u, s, vt = lapack("svd", np.linalg.svd, x, full_matrices=full_matrices)
    except LinAlgError as error:
        raise LinAlgError(f"{error}: are all of the elements finite?") from None

    def vjp(grads):
        k, (gu, gs, gvt) = s.shape[-1], grads
        gu, gvt = gu if gu is None else gu[..., :k], gvt if gvt is None else gvt[..., :k, :]
        return _svd_vjp(u[..., :k], s, vt[..., :k, :], gu, gs, gvt)

    return (u, s, vt), vjp


def _svd_vjp(u, s, vt, gu=None, gs=None, gvt=None):
    refuse_complex("svd", u)
    ut, v, row = np.swapaxes(u, -1, -2), np.swapaxes(vt, -1, -2), s[..., None, :]
    apart = np.square(row) - np.square(s[..., None])
    f = np.where(np.equal(apart, 0), 0, 1 / np.where(np.equal(apart, 0), 1, apart))
    inner = np.zeros_like(f)
    rest = 0 if gs is None else np.matmul(u * gs[..., None, :], vt)
    if gu is not None:
        p = np.matmul(ut, gu)
        inner = inner + f * (p - np.swapaxes(p, -1, -2)) * row
        rest = rest + np.matmul((gu - np.matmul(u, p)) / row, vt)
    if gvt is not None:
        gv = np.swapaxes(gvt, -1, -2)
        p = np.matmul(vt, gv)
        inner = inner + s[..., None] * (f * (p - np.swapaxes(p, -1, -2)))
        rest = rest + np.matmul(u / row, np.swapaxes(gv - np.matmul(v, p), -1, -2))
    return np.matmul(np.matmul(u, inner), vt) + rest


def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> USVh:
    """(U, S, Vh) with A = U diag(S) Vh: U and Vh are orthogonal, S is descending.

    Args:
        A: (..., m, n); let k = min(m, n). S is (..., k).
        full_matrices: U (..., m, m) and Vh (..., n, n), not just (..., m, k) and (..., k, n). Columns and
            rows beyond the first k have no gradient. Of the others there is one where the values in S differ;
            if the loss depends on the signs of U and V it means nothing.
        driver: for cuSOLVER in PyTorch; must be None.

    Raises:
        RuntimeError: `A` is of integers or half precision, or has fewer than two dims; a driver.
        LinAlgError: no result was found, because of NaN or inf.
    """
    if driver is not None:
        raise RuntimeError(f"linalg.svd: no choice of driver here, got driver={driver!r}")
    return USVh(*svd(A, bool(full_matrices)))


def torch_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> USV:
    """(U, S, V) with input = U diag(S) Vᵀ; see `linalg.svd`.

    Args:
        some: False for square U and V.
        compute_uv: False for zeros in place of U and V, without a gradient.
    """
    u, s, vh = svd(input, not some)
    v = transpose(vh, -1, -2)
    if not compute_uv:
        return USV(input.new_zeros(_square(u)), s, input.new_zeros(_square(v)))
    return USV(u, s, v)


def _square(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:-1], x.shape[-2])


torch_svd.__name__ = torch_svd.__qualname__ = linalg_svd.__name__ = linalg_svd.__qualname__ = "svd"
