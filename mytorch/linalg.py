"""Linear algebra under PyTorch's names: `mytorch.linalg.vector_norm`, `solve`, `svd`, …"""

from __future__ import annotations

from collections.abc import Iterable

from .backends.dtypes import DTypeLike
from .core.tensor import Tensor
from .ops.arrays import make_them_take_arrays
from .ops.dims import Dims, numpy_names
from .ops.factors import cholesky, eigh, eigvalsh
from .ops.factors import linalg_qr as qr
from .ops.linalg_checks import LinAlgError
from .ops.matrix_chain import matrix_power, multi_dot
from .ops.matrix_exponential import matrix_exp
from .ops.norms import matrix_norm, vector_norm
from .ops.pseudoinverse import lstsq, matrix_rank, pinv
from .ops.solve import det, inv, slogdet, solve, solve_triangular
from .ops.svd import linalg_svd as svd
from .ops.svd import svdvals

__all__ = [
    "LinAlgError", "cholesky", "det", "eigh", "eigvalsh", "inv", "lstsq", "matrix_exp", "matrix_norm",
    "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "vector_norm",
]


@numpy_names
def norm(
    x: Tensor, ord: float | str | None = None, dim: Dims = None, keepdim: bool = False, *,
    dtype: DTypeLike = None,
) -> Tensor:
    """The `matrix_norm` in two dims, the `vector_norm` in one; without `ord` the vector norm of order 2.

    Raises:
        RuntimeError: with `ord`, neither one dim nor two; errors of the two norms.

    >>> mytorch.linalg.norm(mytorch.tensor([3.0, 4.0]))
    tensor(5.00000)
    """
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    dims = x.ndim if dim is None else len(tuple(dim)) if isinstance(dim, Iterable) else 1
    if dims not in (1, 2):
        raise RuntimeError(f"norm(): ord={ord!r} needs 1 or 2 dims, got dim={dim} and shape {list(x.shape)}")
    if dims == 2 or isinstance(ord, str):
        return matrix_norm(x, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(x, ord, dim, keepdim, dtype=dtype)


make_them_take_arrays(globals(), __all__)
