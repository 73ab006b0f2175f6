"""Scatters elements along one dim, by a tensor of indices: they replace, are added or reduced.

An index that is out of bounds is an error, on a GPU after the next wait for it (see `bounds`). Until then
CuPy takes it modulo the size of the dim.
"""

from __future__ import annotations

import numpy as np

from ..backends.dtypes import is_floating_point
from ..core.array import Array
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .broadcast import expand
from .cast import to
from .elementwise import div
from .gather_along import at_least_1d, scatter_index, scatter_source
from .gather_scatter import gather_nd, index_mask, scatter_nd, scatter_sum
from .scalars import Number
from .scatter_fold import scatter_extreme, scatter_prod

__all__ = ["scatter", "scatter_add", "scatter_reduce"]


def scatter(
    input: Tensor, dim: int, index: Tensor, src: Tensor | Number | None = None, *,
    value: Number | None = None, reduce: str | None = None,
) -> Tensor:
    """A copy of `input` in which y[i, index[i, j, k], k] = src[i, j, k] for dim 1, and so on.

    Args:
        index: as for `gather`; of equal ones the last wins on the CPU, any on a GPU.
        src: a tensor of the input's dtype, in no dim smaller than `index`, or a number.
        value: a number, instead of `src`.
        reduce: "add" or "multiply": combine with the element of `input` instead of replacing it.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: an index is out of bounds; dtypes or shapes don't fit; another `reduce`.

    >>> mytorch.zeros(2, 2).scatter(1, mytorch.tensor([[1], [0]]), 5.0)
    tensor([[0.00000 5.00000]
            [5.00000 0.00000]])
    """
    if (src is None) == (value is None):
        raise TypeError("scatter(): expects either src or value")
    if isinstance(value, Tensor):
        if value.ndim:
            raise TypeError(f"scatter(): value must be a number, got a tensor of shape {list(value.shape)}")
        value = value.item()
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError(f"scatter(): reduce argument must be either add or multiply, got {reduce!r}")
    src = scatter_source("scatter", input, index, value if src is None else src)
    if reduce is None:
        return _scatter(input, dim, index, src)
    if not isinstance(src, Tensor):
        src = expand(Tensor(Array(src, input.dtype, input.device)), index.shape)
    if reduce == "add":
        return _scatter_add(input, dim, index, src)
    return scatter_prod(input, dim, index, src, include_self=True)


@op(half="float16")
def _scatter(x, dim, index, src):
    shape, y = x.shape, np.copy(x)
    places = scatter_index("scatter", at_least_1d(y), dim, index)
    at_least_1d(y)[places] = src
    dims = tuple(range(len(places)))

    def grad_x(g):
        return np.where(index_mask(places, shape or (1,), index).reshape(shape), 0, g)

    return y, (grad_x, None, None, lambda g: gather_nd.dual(at_least_1d(g), *places, dims=dims))


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` in which y[i, index[i, j, k], k] += src[i, j, k] for dim 1, and so on.

    Elements with equal indices are all added.

    Raises:
        IndexError, RuntimeError: as for `scatter`.
        TypeError: `src` is a number.

    >>> mytorch.zeros(2).scatter_add(0, mytorch.tensor([1, 1]), mytorch.ones(2))
    tensor([0.00000 2.00000])
    """
    require_tensor(src, "src of scatter_add")
    return _scatter_add(input, dim, index, scatter_source("scatter_add", input, index, src))


@op
def _scatter_add(x, dim, index, src):
    shape, whole = x.shape, x.shape or (1,)
    places = scatter_index("scatter_add", at_least_1d(x), dim, index)
    dims = tuple(range(len(whole)))
    y = x + scatter_sum(src, places, dims, whole).reshape(shape)
    return y.astype(x.dtype, copy=False), (
        lambda g: g, None, None, lambda g: gather_nd.dual(at_least_1d(g), *places, dims=dims),
    )


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `input` in which the elements of `src` with equal indices are reduced to one.

    Args:
        index: as for `gather`.
        src: a tensor of the input's dtype, in no dim smaller than `index`.
        reduce: "sum", "prod", "mean" (of integers rounded down), "amax" or "amin". Several elements that are
            the greatest or least share the gradient.
        include_self: whether the element of `input` is reduced with them.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: an index is out of bounds; dtypes or shapes don't fit; another `reduce`.
        NotImplementedError: the mean of bools.

    >>> mytorch.zeros(2).scatter_reduce(0, mytorch.tensor([1, 1]), mytorch.tensor([3.0, 2.0]), "amax")
    tensor([0.00000 3.00000])
    """
    require_tensor(src, "src of scatter_reduce")
    src = scatter_source("scatter_reduce", input, index, src)
    if reduce == "prod":
        return scatter_prod(input, dim, index, src, include_self=include_self)
    if reduce in ("amax", "amin"):
        return scatter_extreme(input, dim, index, src, greatest=reduce == "amax", include_self=include_self)
    if reduce not in ("sum", "mean"):
        raise RuntimeError(
            f"scatter_reduce(): reduce argument must be either sum, prod, mean, amax or amin, got {reduce!r}"
        )
    if reduce == "mean" and input.dtype == np.bool:
        raise NotImplementedError("scatter_reduce(): there is no mean of bools")
    before = input if include_self else scatter(input, dim, index, 0)
    total = scatter_add(before, dim, index, src)
    if reduce == "sum":
        return total
    count = _count(input, dim, index, include_self=include_self)
    mean = div(total, count, rounding_mode=None if is_floating_point(input.dtype) else "floor")
    return to(mean, input.dtype)


@op
def _count(x, dim, index, include_self):
    """Returns the number of elements of each mean, at least 1."""
    places, whole = scatter_index("scatter_reduce", at_least_1d(x), dim, index), x.shape or (1,)
    ones = np.ones_like(index, dtype=np.int64)
    sent = scatter_nd.dual(ones, places, tuple(range(len(whole))), whole).reshape(x.shape)
    return np.maximum(sent + include_self, 1), None
