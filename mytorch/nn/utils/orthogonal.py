"""A parametrization whose matrices are orthogonal."""

from __future__ import annotations

from ...autograd import no_grad
from ...backends.dtypes import finfo
from ...core.tensor import Tensor
from ...ops import allclose, cat, eye, matmul, matrix_exp, randn, stack, view_as_complex, where, zeros_like
from ...ops.factors import linalg_qr
from ...ops.solve import solve
from ..module import Module

MAPS = ("matrix_exp", "cayley", "householder")


class Orthogonal(Module):
    """An orthogonal matrix of a matrix X, of its lower triangle; its columns, if it is tall.

        matrix_exp    base exp(A),  A = tril(X) - tril(X)^H
        cayley        base (I - A/2)^-1 (I + A/2)
        householder   base H_1 … H_k diag(X),  H_i = I - 2 v v^T / v^T v,  v = (…, 0, 1, X_(i+1)i, …)

    Args:
        weight: whose shape and dtype it is.
        orthogonal_map: one of these three.
        use_trivialization: keep a `base`, the initial value or the one that was assigned; else I.
    """

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool):
        super().__init__()
        if orthogonal_map not in MAPS:
            raise ValueError(
                'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                f"Got: {orthogonal_map}"
            )
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map, self.has_base = weight.shape, orthogonal_map, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        is_wide = X.shape[-2] < X.shape[-1]
        X = X.mT if is_wide else X
        Q = _reflected(X) if self.orthogonal_map == "householder" else _rotated(X, self.orthogonal_map)
        if self.has_base:
            Q = matmul(self.base, Q)
        return Q.mT if is_wide else Q

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got one of shape {Q.shape}."
            )
        is_wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if is_wide else Q
        if self.has_base:
            self.base = _completed(tall)
            start = zeros_like(Q)
            start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # which every map turns into I
            return start
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        X = _reflectors(tall)
        return X.mT if is_wide else X


def _rotated(X: Tensor, name: str) -> Tensor:
    n, k = X.shape[-2:]
    L = X.tril()
    if n != k:
        L = cat([L, L.new_zeros((*L.shape[:-1], n - k))], -1)
    A = L - L.mH
    if name == "matrix_exp":
        return matrix_exp(A)[..., :k]
    unit = eye(n, dtype=A.dtype, device=A.device)
    return solve(unit - 0.5 * A, unit + 0.5 * A)[..., :k]


def _reflected(X: Tensor) -> Tensor:
    n, k = X.shape[-2:]
    unit = eye(n, k, dtype=X.dtype, device=X.device)
    V = X.tril(-1) + unit
    Q = unit.expand(X.shape)
    for i in reversed(range(k)):
        v = V[..., i : i + 1]
        Q = Q - v * (2 / (v * v).sum((-2, -1), keepdim=True)) * matmul(v.mT, Q)
    return Q * X.detach().diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def _reflectors(Q: Tensor) -> Tensor:
    """The inverse of `_reflected`: v below the diagonal, and signs on it; Q may be any matrix, with R > 0.

    Source: LAPACK's geqrf, https://netlib.org/lapack/explore-html/
    """
    columns, rest = [], Q
    for i in range(Q.shape[-1]):
        x = rest[..., i:, :1]
        first, norm = x[..., :1, :], x.norm(dim=-2, keepdim=True)
        beta = where(first < 0, norm, -norm)
        is_done = (x[..., 1:, :] == 0).all(-2, keepdim=True)  # no reflection: its v is e_i, which negates
        v = x / where(is_done, 1, first - beta)
        sign = where(is_done, -first.sign(), beta.sign())
        below = where(is_done, 0, v[..., 1:, :])
        columns.append(cat([x.new_zeros((*x.shape[:-2], i, 1)), sign, below], -2))
        v = cat([x.new_zeros((*x.shape[:-2], i, 1)), sign.new_ones(sign.shape), below], -2)
        scale = where(is_done, 0, 2 / (v * v).sum(-2, keepdim=True))
        rest = (rest - v * scale * matmul(v.mT, rest))[..., 1:]
    return stack([c.squeeze(-1) for c in columns], -1)


def _completed(Q: Tensor) -> Tensor:
    """Returns orthogonal square matrices that begin with Q, or with its orthogonalized columns."""
    n, k = Q.shape[-2:]
    if n != k:
        parts = (2,) if Q.is_complex() else ()
        rest = randn(*Q.shape[:-1], n - k, *parts, dtype=Q.real.dtype, device=Q.device)
        Q = cat([Q, view_as_complex(rest) if parts else rest], -1)
    else:
        unit = eye(n, dtype=Q.dtype, device=Q.device).expand(Q.shape)
        if allclose(matmul(Q.mH, Q), unit, atol=10 * n * float(finfo(Q.real.dtype).eps)):
            return Q.clone()
    Q, R = linalg_qr(Q)
    return Q * R.diagonal(dim1=-2, dim2=-1).real.sign().unsqueeze(-2)
