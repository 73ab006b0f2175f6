"""Elements by their rank in order: the median, the k-th smallest, quantiles; and the most frequent one."""

from __future__ import annotations

import numpy as np

from ..backends.device import RawArray
from ..backends.dtypes import int64
from ..core.op import index_of, op, require_tensor
from ..core.tensor import Tensor
from .bounds import require_all
from .compare import isnan, logical_not
from .create import tensor
from .dims import Dims, canonical_dim, numpy_names
from .elementwise import ceil, clamp, floor, lerp
from .gather_along import gather
from .mask import where
from .minmax import ValuesIndices, select_along, split_among_ties
from .reduce import sum, total
from .scan import running
from .shape import movedim, reshape
from .sort import sort

__all__ = ["median", "nanmedian", "kthvalue", "mode", "quantile", "nanquantile"]

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@numpy_names
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The middle element in order, of an even number the lower of the two; with `dim` (values, indices).

    NaN if there is one. Without `dim`, equal elements share the gradient evenly; with `dim` all of it goes to
    the one at the index.

    Raises:
        IndexError: the dim is out of range, or it has size 0.
        NotImplementedError: `x` is bool.

    >>> mytorch.tensor([3, 1, 2, 4]).median()
    tensor(2)
    """
    if dim is None:
        return _median_of_all(x, skip_nan=False)
    return ValuesIndices(*_median(x, dim=dim, keepdim=keepdim, skip_nan=False))


@numpy_names
def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The median of all that is not NaN; otherwise as `median`.

    >>> mytorch.tensor([1.0, float("nan"), 3.0]).nanmedian()
    tensor(1.00000)
    """
    if dim is None:
        return _median_of_all(x, skip_nan=True)
    return ValuesIndices(*_median(x, dim=dim, keepdim=keepdim, skip_nan=True))


@op
def _median_of_all(x, *, skip_nan):
    _check_numbers("median", x)
    if 0 in x.shape:
        y = np.full_like(x, np.nan, np.float64, shape=()).astype(x.dtype)
    else:
        flat = np.reshape(x, -1)
        y = np.take(np.sort(flat), _middle(flat, 0, skip_nan)[0])
    return y, split_among_ties(x, y, None, True)


@op(half="float16")
def _median(x, *, dim, keepdim, skip_nan):
    _check_numbers("median", x)
    line, axis = _lines("median", x, dim)
    order = np.argsort(line, axis=axis, kind="stable")
    index = np.take_along_axis(order, _middle(line, axis, skip_nan), axis)
    return select_along(x, index, axis, keepdim)


def _middle(x: RawArray, axis: int, skip_nan: bool) -> RawArray:
    """The rank of the median along the axis, kept with size 1; NaN comes last in order."""
    n, known = x.shape[axis], total(np.equal(x, x), (axis,), True, int64)
    if skip_nan:
        return np.maximum(known - 1, 0) // 2
    return np.where(known < n, known, (n - 1) // 2)  # the first NaN, if there is one


@numpy_names
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest element along `dim`, counted from 1, and its index, as (values, indices).

    NaN is larger than any number. Equal elements count in their order.

    Raises:
        RuntimeError: k is less than 1 or more than the size of the dim.
        IndexError: the dim is out of range, or it has size 0.
        NotImplementedError: `x` is bool.

    >>> mytorch.tensor([3, 1, 2]).kthvalue(2)
    ValuesIndices(values=tensor(2), indices=tensor(2))
    """
    return ValuesIndices(*_kthvalue(x, k=index_of(k), dim=dim, keepdim=keepdim))


@op(half="float16")
def _kthvalue(x, *, k, dim, keepdim):
    _check_numbers("kthvalue", x)
    line, axis = _lines("kthvalue", x, dim)
    n = line.shape[axis]
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range: {k} of {n} in dim {axis}")
    order = np.argsort(line, axis=axis, kind="stable")
    return select_along(x, order[(slice(None),) * axis + (slice(k - 1, k),)], axis, keepdim)


@numpy_names
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent element along `dim`, and the last index of it, as (values, indices).

    Of several equally frequent ones the smallest. All of the gradient goes to the one at the index.

    Raises:
        IndexError: the dim is out of range, or it has size 0.

    >>> mytorch.tensor([1, 2, 2]).mode()
    ValuesIndices(values=tensor(2), indices=tensor(2))
    """
    return ValuesIndices(*_mode(x, dim=dim, keepdim=keepdim))


@op(half="float16")
def _mode(x, *, dim, keepdim):
    line, axis = _lines("mode", x, dim)
    line = np.moveaxis(line, axis, -1)
    order = np.argsort(line, axis=-1, kind="stable")
    ordered = np.take_along_axis(line, order, -1)
    position = np.arange(line.shape[-1], like=order)
    fresh = np.not_equal(ordered[..., 1:], ordered[..., :-1])
    # The start of the run of equal elements that each is in.
    start = running(np.maximum, np.where(fresh, position[1:], 0), line.ndim - 1)
    length = position - np.concatenate([np.zeros_like(order[..., :1]), start], -1)
    longest = np.expand_dims(np.argmax(length, axis=-1), -1)
    return select_along(x, np.moveaxis(np.take_along_axis(order, longest, -1), -1, axis), axis, keepdim)


def _lines(name: str, x: RawArray, dim: Dims) -> tuple[RawArray, int]:
    """`x`, at least 1-d, and the axis along which one element is chosen."""
    axis = canonical_dim(dim, x.ndim)
    if x.ndim and not x.shape[axis]:
        raise IndexError(f"{name}(): expected dim {axis} to have non-zero size, got shape {list(x.shape)}")
    return np.reshape(x, x.shape or 1), axis


def _check_numbers(name: str, x: RawArray) -> None:
    if x.dtype == np.bool:
        raise NotImplementedError(f"{name}(): bool tensors have no order")


@numpy_names
def quantile(
    x: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:
    """The element at rank q (n - 1) in order along `dim`, or of all; NaN if there is a NaN.

    Args:
        q: between 0 and 1; several in a vector make a first dim of the result.
        interpolation: where the rank lies between two elements, "linear" goes from one to the other,
            "midpoint" takes their mean, "lower", "higher" and "nearest" one of them.

    Raises:
        RuntimeError: `x` is neither float32 nor float64, or empty; `q` has another dtype than `x`, or more
            than one dim, or is not between 0 and 1; another `interpolation`.

    >>> mytorch.tensor([0.0, 1.0, 2.0]).quantile(0.25)
    tensor(0.50000)
    """
    return _quantile("quantile", x, q, dim, keepdim, interpolation)


@numpy_names
def nanquantile(
    x: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:
    """The quantile of all that is not NaN; otherwise as `quantile`.

    >>> mytorch.tensor([0.0, float("nan"), 2.0]).nanquantile(0.5)
    tensor(1.00000)
    """
    return _quantile("nanquantile", x, q, dim, keepdim, interpolation)


def _quantile(
    name: str, x: Tensor, q: Tensor | float, dim: Dims, keepdim: bool, interpolation: str
) -> Tensor:
    q = _check_quantile(name, x, q, interpolation)
    shape = [1] * x.ndim
    if dim is None:
        line = reshape(x, -1)
    else:
        dim = canonical_dim(dim, x.ndim)
        line = movedim(reshape(x, x.shape or 1), dim, -1)
        shape = [*x.shape[:dim], *([1] if keepdim else []), *x.shape[dim + 1 :]] if x.ndim else []
    values = _at_quantiles(sort(line).values, reshape(q, -1), name == "nanquantile", interpolation)
    shape = shape if keepdim or dim is not None else []
    return reshape(movedim(values, -1, 0), [*q.shape, *shape])


def _at_quantiles(ordered: Tensor, q: Tensor, skip_nan: bool, interpolation: str) -> Tensor:
    """(..., n) in order along the last dim, with NaN at the end, and (k) quantiles to (..., k)."""
    n = ordered.shape[-1]
    known = sum(logical_not(isnan(ordered)), -1, keepdim=True)
    last = clamp(known - 1, min=0) if skip_nan else where(known < n, n - 1, known - 1)
    rank = q * last
    if not skip_nan:
        rank = where(known < n, last.to(rank.dtype), rank)
    if interpolation == "nearest":
        rank = rank.detach().round()
    low = floor(rank.detach())
    if interpolation in ("lower", "nearest"):
        return gather(ordered, -1, low.long())
    above = gather(ordered, -1, ceil(rank.detach()).long())
    if interpolation == "higher":
        return above
    below = gather(ordered, -1, low.long())
    return lerp(below, above, 0.5 if interpolation == "midpoint" else rank - low)


def _check_quantile(name: str, x: Tensor, q: Tensor | float, interpolation: str) -> Tensor:
    require_tensor(x, name)
    if x.dtype not in (np.float32, np.float64) or 0 in x.shape:
        raise RuntimeError(
            f"{name}(): expected a float32 or float64 tensor with elements, "
            f"got {x.dtype} of shape {list(x.shape)}"
        )
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(f"{name}(): interpolation is one of {INTERPOLATIONS}, got {interpolation!r}")
    if not isinstance(q, Tensor):
        q = tensor(float(q), dtype=x.dtype, device=x.device)
    if q.ndim > 1 or q.dtype != x.dtype:
        raise RuntimeError(
            f"{name}(): q must be a number or a vector of dtype {x.dtype}, "
            f"got {q.dtype} of shape {list(q.shape)}"
        )
    require_all((q >= 0) & (q <= 1), f"{name}(): q must be between 0 and 1", found=q.tolist, waits=False)
    return q
