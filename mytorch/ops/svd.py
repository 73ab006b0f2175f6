"""The singular value decomposition."""

from __future__ import annotations

import numpy as np

from ..backends.dtypes import is_half
from ..core.op import op
from ..core.tensor import Tensor
from .reduce import float_dtype


def svdvals(x: Tensor) -> Tensor:
    """The singular values of the matrices in the last two dims, (..., m, n) to (..., min(m, n)), descending.

    Raises:
        RuntimeError: `x` isn't float32 or float64; it has fewer than two dims; no result was found.
    """
    return svd(x)[1]


@op(outputs=True, half=True)
def svd(x):
    """(U, s, Vᵀ) with x = U diag(s) Vᵀ, U (..., m, k), s (..., k), Vᵀ (..., k, n), k = min(m, n).

    The gradient with respect to U and V exists only where the singular values differ.
    Source: J. Townsend, "Differentiating the singular value decomposition", 2016,
    https://j-towns.github.io/papers/svd-derivative.pdf
    """
    if x.ndim < 2 or is_half(float_dtype("svd", x)):
        raise RuntimeError(
            f"svd(): expected float32 or float64 matrices, got {x.dtype} of shape {list(x.shape)}"
        )
    try:
        u, s, vt = np.linalg.svd(x, full_matrices=False)
    except np.linalg.LinAlgError as error:  # not a RuntimeError, as PyTorch's is
        raise RuntimeError(f"svd(): {error}: are all of the elements finite?") from None
    return (u, s, vt), lambda grads: _svd_vjp(u, s, vt, *grads)


def _svd_vjp(u, s, vt, gu=None, gs=None, gvt=None):
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
