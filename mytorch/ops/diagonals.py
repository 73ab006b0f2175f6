"""Diagonals and triangles of matrices: read, built, cut out, summed."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..backends.device import META, DeviceLike, device_of_new
from ..backends.door import in_force
from ..backends.dtypes import DTypeLike
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .create import empty, ones
from .dims import canonical_dim, fixed_size
from .reduce import sum
from .scalars import integer
from .shape import as_writable, reshape

__all__ = [
    "diagonal", "diag", "diag_embed", "diagflat", "trace", "tril", "triu", "tril_indices", "triu_indices",
]


@op(view=True)
def diagonal(input, offset=0, dim1=0, dim2=1):
    """The diagonals of the matrices in `dim1` and `dim2`, as the last dim of a view.

    Args:
        offset: 0 for the main diagonal, above it if positive, below it if negative.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: both are one dim.

    >>> mytorch.tensor([[1, 2], [3, 4]]).diagonal()
    tensor([1 4])
    """
    a, b = _two_dims("diagonal", input, dim1, dim2)
    shape = input.shape
    return _diagonal(input, offset, a, b), lambda g: _on_diagonal.dual(g, shape, offset, a, b)


@op(half="float16")
def _on_diagonal(x, shape, offset, a, b):
    """Zeros of `shape` with `x` on the diagonals."""
    whole = np.zeros(shape, x.dtype, like=x)
    _diagonal(whole, offset, a, b)[...] = x
    return whole, lambda g: diagonal.dual(g, offset, a, b)


def _diagonal(x, offset, a, b):
    return as_writable(np.diagonal(x, offset, a, b), x)


def _two_dims(name, x, dim1, dim2, more=0):
    a, b = canonical_dim(dim1, x.ndim + more), canonical_dim(dim2, x.ndim + more)
    if a == b:
        raise RuntimeError(f"{name}(): dim1 and dim2 can't be the same, got {dim1} and {dim2}")
    return a, b


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros in the new dims `dim1` and `dim2`, with the input's last dim as their diagonals.

    Args:
        offset: as for `diagonal`.

    Raises:
        IndexError: the dim is out of range, or the input is 0-d.
        RuntimeError: both are one dim.

    >>> mytorch.ones(2, 3).diag_embed().shape
    Size([2, 3, 3])
    """
    require_tensor(input, "diag_embed")
    if input.ndim == 0:
        raise IndexError("diag_embed(): expected a tensor with at least 1 dimension, got a 0-d one")
    a, b = _two_dims("diag_embed", input, dim1, dim2, 1)
    size = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for dim in sorted((a, b)):
        shape.insert(dim, size)
    return _on_diagonal(input, tuple(shape), offset, a, b)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The square matrix with this diagonal; or the diagonal of a matrix, a copy.

    Raises:
        RuntimeError: the input is neither a vector nor a matrix.

    >>> mytorch.tensor([1, 2]).diag()
    tensor([[1 0]
            [0 2]])
    """
    require_tensor(input, "diag")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"diag(): expects a 1-D or 2-D tensor, got {input.ndim}-D")
    return diag_embed(input, diagonal) if input.ndim == 1 else _diagonal_copy(input, diagonal)


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The square matrix with the flattened input as its diagonal.

    >>> mytorch.tensor([[1, 2]]).diagflat()
    tensor([[1 0]
            [0 2]])
    """
    return diag_embed(reshape(input, -1), offset)


@op(half="float16")
def _diagonal_copy(x, offset):
    shape = x.shape
    return _diagonal(x, offset, 0, 1).copy(), lambda g: _on_diagonal.dual(g, shape, offset, 0, 1)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal.

    Raises:
        RuntimeError: the input is no matrix.
        NotImplementedError: it is of bools.

    >>> mytorch.tensor([[1, 2], [3, 4]]).trace()
    tensor(5)
    """
    require_tensor(input, "trace")
    if input.dtype == np.bool:
        raise NotImplementedError("trace(): not implemented for bool")
    if input.ndim != 2:
        raise RuntimeError(f"trace(): expected a matrix, but got tensor with dim {input.ndim}")
    return sum(diagonal(input))


def _also_of_ones(triangle: Callable) -> Callable:
    """`triangle(input, diagonal)`, to which a shape stands for a tensor of ones."""

    @functools.wraps(triangle)
    def call(
        input: Tensor | tuple[int, ...], diagonal: int = 0, *, dtype: DTypeLike = None,
        device: DeviceLike = None,
    ) -> Tensor:
        if isinstance(input, tuple):
            input = ones(input, dtype=dtype, device=device)
        elif dtype is not None or device is not None:
            raise TypeError(f"{triangle.__name__}(): dtype and device are for a shape, not for a tensor")
        return triangle(input, diagonal)

    return call


@_also_of_ones
@op(half="float16")
def tril(input, diagonal=0):
    """The matrices of the input with zeros above the `diagonal`-th diagonal; `tril((3, 3))`: of ones.

    >>> mytorch.ones(2, 2).tril()
    tensor([[1.00000 0.00000]
            [1.00000 1.00000]])
    """
    _check_matrix(input, "tril")
    return np.tril(input, diagonal), lambda g: np.tril(g, diagonal)


@_also_of_ones
@op(half="float16")
def triu(input, diagonal=0):
    """The matrices of the input with zeros below the `diagonal`-th diagonal; `triu((3, 3))`: of ones.

    >>> mytorch.ones(2, 2).triu()
    tensor([[1.00000 1.00000]
            [0.00000 1.00000]])
    """
    _check_matrix(input, "triu")
    return np.triu(input, diagonal), lambda g: np.triu(g, diagonal)


def _check_matrix(input, name):
    if input.ndim < 2:
        raise RuntimeError(
            f"{name}: input tensor must have at least 2 dimensions, got shape {list(input.shape)}"
        )


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike = None, device: DeviceLike = None
) -> Tensor:
    """The row and column numbers of a (row, col) matrix's elements up to a diagonal, row by row: (2, count).

    Args:
        offset: which diagonal, as for `diagonal`.
        dtype: int64 by default.

    Raises:
        RuntimeError: a size is negative.

    >>> mytorch.tril_indices(2, 2)
    tensor([[0 1 1]
            [0 0 1]])
    """
    return _indices("tril", row, col, offset, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike = None, device: DeviceLike = None
) -> Tensor:
    """As `tril_indices`, from a diagonal on.

    >>> mytorch.triu_indices(2, 2)
    tensor([[0 0 1]
            [0 1 1]])
    """
    return _indices("triu", row, col, offset, dtype, device)


def _indices(name, row, col, offset, dtype, device):
    row, col, offset = (fixed_size(integer(n, f"{name}_indices")) for n in (row, col, offset))
    if row < 0 or col < 0:
        raise RuntimeError(f"{name}_indices(): row and col must be non-negative, got {row} and {col}")
    if dtype not in (None, np.int64, np.int32):
        raise NotImplementedError(f"{name}_indices(): not implemented for dtype {dtype}")
    target = device_of_new(device)
    if target is META and not in_force().answers:  # a program needs the elements
        below = _count_below(row, col, offset if name == "tril" else offset - 1)
        return empty(2, below if name == "tril" else row * col - below, dtype=dtype or np.int64, device=META)
    places = getattr(np, f"{name}_indices")(row, offset, col)
    return Tensor(np.stack(places), dtype=dtype or np.int64, device=target)


def _count_below(row: int, col: int, offset: int) -> int:
    """Returns the number of a (row, col) matrix's elements up to a diagonal; row i has i + 1 + offset, if
    these are at least 0 and at most `col`."""

    def up_to(n: int) -> int:
        n, more = min(n, col), max(n - col, 0)
        return n * (n + 1) // 2 * (n > 0) + more * col

    return up_to(row + offset) - up_to(offset)
