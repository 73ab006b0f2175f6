"""The exponential of matrices."""

from __future__ import annotations

import math

from ..backends.device import is_readable
from ..core.tensor import Tensor, raw_of
from .create import eye
from .linalg import matmul

__all__ = ["matrix_exp"]

DEGREE, NORM = 18, 1.0  # terms of the series, for matrices of at most this norm: digits of float64


def matrix_exp(A: Tensor) -> Tensor:
    """Returns the exponential of square matrices, 1 + A + A²/2! + A³/3! + …

    The series is that of A / 2^s, whose norm is small; its sum is squared s times.

    Args:
        A: (..., n, n), floating-point or complex.

    Raises:
        RuntimeError: the matrices aren't square, or of another dtype.

    Source: Moler & Van Loan, "Nineteen Dubious Ways to Compute the Exponential of a Matrix, Twenty-Five Years
        Later", 2003, method 3. https://doi.org/10.1137/S00361445024180

    >>> mytorch.matrix_exp(mytorch.zeros(2, 2))
    tensor([[1.00000 0.00000]
            [0.00000 1.00000]])
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"matrix_exp: A must be batches of square matrices, but they are {list(A.shape)}")
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(f"matrix_exp: expected a floating-point or complex tensor, got {A.dtype}")
    is_known = A.numel() and is_readable(raw_of(A))
    largest = float(A.detach().abs().sum(-1).amax()) if is_known else 0.0
    squarings = math.frexp(largest / NORM)[1] if NORM < largest < math.inf else 0
    scaled = A / 2.0**squarings
    unit = eye(A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape)
    result = unit
    for k in range(DEGREE, 0, -1):
        result = unit + matmul(scaled, result) / k
    for _ in range(squarings):
        result = matmul(result, result)
    return result
