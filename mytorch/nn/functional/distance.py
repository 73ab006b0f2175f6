"""pairwise_distance and cosine_similarity."""

from __future__ import annotations

from ...backends.dtypes import is_floating_point, promote_types
from ...core.tensor import Tensor
from ...core.upcast import rounds_once
from ...ops import broadcast_tensors, norm
from .loss import at_least, check_broadcast


@rounds_once
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Returns the cosine of the angle between x1 and x2, broadcast, along a dim.

        x1 . x2 / (max(|x1|, eps) max(|x2|, eps))

    Raises:
        RuntimeError: integer dtypes, or shapes that cannot be broadcast.
        IndexError: no such dim.

    >>> F.cosine_similarity(mytorch.tensor([[1.0, 0.0]]), mytorch.tensor([[1.0, 1.0]]))
    tensor([0.70711])
    """
    check_broadcast("cosine_similarity", x1=x1, x2=x2)
    dtype = promote_types(x1.dtype, x2.dtype)
    if not is_floating_point(dtype):
        raise RuntimeError(f"cosine_similarity(): expected a floating-point dtype, got {dtype}")
    pair = broadcast_tensors(x1.to(dtype), x2.to(dtype))
    x1, x2 = (x / at_least(norm(x, 2, dim, True), eps) for x in pair)
    return (x1 * x2).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Returns the p-norm of x1 - x2 + eps along the last dim; eps keeps the gradient finite.

    Raises:
        RuntimeError: shapes that cannot be broadcast.

    >>> F.pairwise_distance(mytorch.tensor([[0.0, 0.0]]), mytorch.tensor([[3.0, 4.0]]))
    tensor([5.00000])
    """
    check_broadcast("pairwise_distance", x1=x1, x2=x2)
    return norm(x1 - x2 + float(eps), p, -1, keepdim)
