"""Powers and chains of matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.op import require_tensor
from ..core.tensor import Tensor
from .create import eye
from .elementwise import zero
from .linalg import matmul
from .shape import squeeze, unsqueeze
from .solve import inv

__all__ = ["matrix_power"]


def matrix_power(A: Tensor, n: int) -> Tensor:
    """The product of n factors A, square matrices (..., m, m); of their inverses if n is negative.

    It takes about log2(n) products, by squaring.

    Raises:
        RuntimeError: the matrices aren't square.
        LinAlgError: n is negative and a matrix is singular.

    >>> mytorch.matrix_power(mytorch.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1.00000 3.00000]
            [0.00000 1.00000]])
    """
    require_tensor(A, "linalg.matrix_power")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, got shape {list(A.shape)}"
        )
    if n == 0:
        return zero(A) + eye(A.shape[-1], dtype=A.dtype, device=A.device)
    if n < 0:
        A, n = inv(A), -n
    power = None
    while True:
        if n & 1:
            power = A if power is None else matmul(power, A)
        n >>= 1
        if n == 0:
            return power
        A = matmul(A, A)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two matrices or more, in the order that takes the fewest multiplications.

    Args:
        tensors: matrices; the first may be a vector, a row, and the last one, a column.

    Raises:
        RuntimeError: fewer than two tensors; other numbers of dims; the shapes or dtypes don't fit.

    Source: Cormen et al., "Introduction to Algorithms", chapter 15.2, as at
    https://en.wikipedia.org/wiki/Matrix_chain_multiplication
    """
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    if row:
        tensors[0] = unsqueeze(tensors[0], 0)
    if column:
        tensors[-1] = unsqueeze(tensors[-1], 1)
    for i, x in enumerate(tensors):
        if x.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {x.ndim}D")
    y = _chain(tensors, _best_splits([x.shape[0] for x in tensors] + [tensors[-1].shape[1]]), 0, len(tensors))
    y = squeeze(y, 0) if row else y
    return squeeze(y, -1) if column else y


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """For the factors from i to j: where to split them into two products, for the fewest multiplications."""
    count = len(sizes) - 1
    cost, split = {(i, i + 1): 0 for i in range(count)}, {}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            costs = {k: cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j] for k in range(i + 1, j)}
            split[i, j] = min(costs, key=costs.__getitem__)
            cost[i, j] = costs[split[i, j]]
    return split


def _chain(tensors: list[Tensor], splits: dict, i: int, j: int) -> Tensor:
    if j == i + 1:
        return tensors[i]
    k = splits[i, j]
    return matmul(_chain(tensors, splits, i, k), _chain(tensors, splits, k, j))
