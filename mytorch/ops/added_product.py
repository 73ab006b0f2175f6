"""A product added to a tensor: beta * input + alpha * product."""

from __future__ import annotations

from collections.abc import Callable

from ..core.grad_mode import _state
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from ..core.upcast import rounds_once
from .autocast import in_half, in_half_on_a_gpu
from .broadcast import expand
from .linalg import bmm, expect_dims, mm, mv, outer
from .scalars import as_number
from .shape import permute, reshape

__all__ = ["addmm", "addmv", "addbmm", "baddbmm", "addr"]


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2

    Args:
        input: broadcasts to (m, n), of the matrices' dtype; with beta=0 nothing of it counts, not even NaN.
        mat1, mat2: (m, k) and (k, n).
        beta, alpha: as numbers of the tensors' dtype: of 2.7 integers take 2.

    Raises:
        RuntimeError: the shapes don't fit; the dtypes differ.

    >>> mytorch.ones(2, 2).addmm(mytorch.ones(2, 3), mytorch.ones(3, 2))
    tensor([[4.00000 4.00000]
            [4.00000 4.00000]])
    """
    expect_dims("addmm", mat1, 2, mat2, 2)
    return _add_product("addmm", input, mm, mat1, mat2, beta, alpha)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * mat @ vec: as `addmm`, for a matrix (m, k) and a vector (k,).

    >>> mytorch.ones(2).addmv(mytorch.ones(2, 3), mytorch.ones(3))
    tensor([4.00000 4.00000])
    """
    expect_dims("addmv", mat, 2, vec, 1)
    return _add_product("addmv", input, mv, mat, vec, beta, alpha)


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * sum_b batch1[b] @ batch2[b]: as `addmm`, for batches (b, m, k) and (b, k, n).

    >>> mytorch.ones(2, 2).addbmm(mytorch.ones(5, 2, 3), mytorch.ones(5, 3, 2))
    tensor([[16.00000 16.00000]
            [16.00000 16.00000]])
    """
    expect_dims("addbmm", batch1, 3, batch2, 3)
    (b, m, k), (c, inner, n) = batch1.shape, batch2.shape
    if (b, k) != (c, inner):
        raise RuntimeError(
            f"addbmm(): batches of shapes {(b, m, k)} and {(c, inner, n)} cannot be multiplied"
        )
    side_by_side = reshape(permute(batch1, 1, 0, 2), (m, b * k))
    return _add_product("addbmm", input, mm, side_by_side, reshape(batch2, (b * k, n)), beta, alpha)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * batch1 @ batch2: as `addmm`, for batches (b, m, k) and (b, k, n).

    >>> mytorch.ones(5, 2, 2).baddbmm(mytorch.ones(5, 2, 3), mytorch.ones(5, 3, 2)).shape
    Size([5, 2, 2])
    """
    expect_dims("baddbmm", batch1, 3, batch2, 3)
    return _add_product("baddbmm", input, bmm, batch1, batch2, beta, alpha)


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2), in the dtype of their promotion: "or" and "and" for bools.

    Raises:
        RuntimeError: as `addmm`, but for the dtypes; a float `beta` or `alpha` of integers.

    >>> mytorch.ones(2, 2).addr(mytorch.ones(2), mytorch.ones(2))
    tensor([[2.00000 2.00000]
            [2.00000 2.00000]])
    """
    expect_dims("addr", vec1, 1, vec2, 1)
    if all(t.dtype.kind in "iub" for t in (input, vec1, vec2)):
        for what, value in (("beta", beta), ("alpha", alpha)):
            if isinstance(value, float):
                raise RuntimeError(f"addr(): for integer tensors {what} must be an integer, got {value}")
    return _add_product("addr", input, outer, vec1, vec2, beta, alpha)


@rounds_once
def _add_product(
    name: str, input: Tensor, multiply: Callable, x: Tensor, y: Tensor, beta: float, alpha: float
) -> Tensor:
    require_tensor(input, name)
    if _state.autocast is not None:
        casts = in_half_on_a_gpu if multiply in (mv, outer) else in_half
        input, x, y = casts((input, x, y))
    product = multiply(x, y)
    if input.dtype != product.dtype and multiply is not outer:
        raise RuntimeError(f"{name}(): expected one dtype, got {input.dtype} and {product.dtype}")
    if input.shape != product.shape:
        input = expand(input, product.shape)
    return _weighted_sum(input, product, beta=beta, alpha=alpha, name=name)


@op(promote="common")
def _weighted_sum(x, y, *, beta, alpha, name):
    beta, alpha = as_number(beta, x.dtype, name), as_number(alpha, x.dtype, name)
    z = y if alpha == 1 else alpha * y
    if beta != 0:
        z = z + (x if beta == 1 else beta * x)
    return z, (lambda g: g * beta, lambda g: g * alpha)
