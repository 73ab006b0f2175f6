"""Cholesky factors and triangular systems, one column at a time, on Tensors: for small matrices."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..ops import cat, stack


def cholesky(matrix: Tensor) -> Tensor:
    """Returns the lower triangular L with L L^T = matrix, (..., n, n); NaN if it isn't positive definite."""
    matrix = (matrix + matrix.mT) / 2  # so that the gradient is symmetric, too
    columns: list[Tensor] = []
    for j in range(matrix.shape[-1]):
        column = matrix[..., j:, j]
        for k, before in enumerate(columns):
            column = column - before[..., j - k :] * before[..., j - k].unsqueeze(-1)
        columns.append(column / column[..., :1].sqrt())
    zeros = matrix[..., 0] * 0
    return stack([cat([zeros[..., :j], c], -1) for j, c in enumerate(columns)], -1)


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """Returns the x with factor x = right, by forward substitution.

    Args:
        factor: lower triangular, (..., n, n).
        right: (..., n, m)
    """
    rows: list[Tensor] = []
    for i in range(factor.shape[-1]):
        row = right[..., i, :]
        for j, before in enumerate(rows):
            row = row - factor[..., i, j].unsqueeze(-1) * before
        rows.append(row / factor[..., i, i].unsqueeze(-1))
    return stack(rows, -2)
