"""Binary search, bins and histograms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..backends.device import has_values
from ..backends.door import in_force
from ..backends.dtypes import is_floating_point
from ..core.op import NUMBERS, op, require_tensor
from ..core.tensor import Tensor
from .create import tensor
from .gather_along import take_along_dim
from .ranges import linspace

__all__ = ["searchsorted", "bucketize", "bincount", "histc", "histogram"]


def searchsorted(
    sorted_sequence: Tensor, input: Tensor | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:
    """The indices at which to insert values into an ordered sequence so that it stays in order.

    y = i means sorted_sequence[i - 1] < value <= sorted_sequence[i], with `right` <= and <.

    Args:
        sorted_sequence: of shape (n), or (..., n) with a sequence for each row of `input`.
        input: values, of shape (..., m), any shape for a single sequence, or a number.
        out_int32: return int32 instead of int64.
        side: "left" or "right": another way to say `right`.
        sorter: the order of a sequence that isn't ordered, as `argsort` returns it; int64.

    Raises:
        RuntimeError: shapes don't fit; the sorter is not int64 or out of bounds; `side` contradicts `right`,
            or is another word.

    >>> mytorch.searchsorted(mytorch.tensor([1, 3, 5]), mytorch.tensor([2, 3]))
    tensor([1 1])
    """
    require_tensor(sorted_sequence, "searchsorted")
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(f"searchsorted(): side is 'left' or 'right', got {side!r} with right={right}")
    if isinstance(input, NUMBERS):
        if sorted_sequence.ndim != 1:
            raise RuntimeError(
                f"searchsorted(): a number in sequences of shape {list(sorted_sequence.shape)}"
            )
        input = tensor(input, device=sorted_sequence.device)
    require_tensor(input, "searchsorted")
    _check_sequence("searchsorted", sorted_sequence, input)
    if sorter is not None:
        _check_sorter(sorter, sorted_sequence)
        sorted_sequence = take_along_dim(sorted_sequence, sorter, -1)
    dtype = np.int32 if out_int32 else np.int64
    return _search(sorted_sequence, input, right=right or side == "right", dtype=dtype)


def bucketize(
    input: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the bucket that each value falls into: `searchsorted` in a vector of boundaries.

    Raises:
        RuntimeError: `boundaries` is no vector.

    >>> mytorch.bucketize(mytorch.tensor([2, 6]), mytorch.tensor([1, 3, 5]))
    tensor([1 3])
    """
    require_tensor(boundaries, "bucketize")
    if boundaries.ndim != 1:
        raise RuntimeError(
            f"bucketize(): boundaries must have 1 dimension, got shape {list(boundaries.shape)}"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@op(promote="common", half="float16")
def _search(sequence, x, *, right, dtype):
    """Binary search in all rows at once."""
    reached = np.greater if right else np.greater_equal  # NaN in the sequence is passed by, as in PyTorch
    rows = x
    if sequence.ndim == 1:
        sequence, rows = np.reshape(sequence, (1, -1)), np.reshape(x, (1, -1))
    n = sequence.shape[-1]
    low = np.zeros(rows.shape, np.int64, like=x)
    high = np.full_like(low, n)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        found = np.take_along_axis(sequence, np.minimum(middle, n - 1), -1)
        going, left = low < high, reached(found, rows)
        low, high = np.where(going & ~left, middle + 1, low), np.where(going & left, middle, high)
    return np.reshape(low, x.shape).astype(dtype), None


def _check_sequence(name: str, sequence: Tensor, x: Tensor) -> None:
    if sequence.ndim == 0 or (sequence.ndim > 1 and sequence.shape[:-1] != x.shape[:-1]):
        raise RuntimeError(
            f"{name}(): boundaries of shape {list(sequence.shape)} must have 1 dimension, or all dimensions "
            f"but the last those of the values of shape {list(x.shape)}"
        )


def _check_sorter(sorter: Tensor, sequence: Tensor) -> None:
    require_tensor(sorter, "sorter of searchsorted")
    if sorter.dtype != np.int64 or sorter.shape != sequence.shape:
        raise RuntimeError(
            f"searchsorted(): sorter must be int64 of shape {list(sequence.shape)}, "
            f"got {sorter.dtype} of shape {list(sorter.shape)}"
        )


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of 0, 1, …, or the sum of their weights.

    Args:
        input: a vector of integers, none negative.
        weights: one for each element; float32 gives float32, all else float64 (none at all int64).
        minlength: of the result, which else ends with the largest number.

    Raises:
        NotImplementedError: no integers.
        RuntimeError: not such a vector; weights of another shape; a negative `minlength`.

    >>> mytorch.tensor([0, 2, 2]).bincount()
    tensor([1 0 2])
    """
    require_tensor(input, "bincount")
    if input.dtype.kind not in "iu":
        raise NotImplementedError(f"bincount(): expected integers, got {input.dtype}")
    if input.ndim != 1:
        raise RuntimeError(f"bincount(): expected a vector, got shape {list(input.shape)}")
    if minlength < 0:
        raise RuntimeError(f"bincount(): minlength must not be negative, got {minlength}")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError(
            f"bincount(): weights of shape {list(weights.shape)} for an input of {list(input.shape)}"
        )
    return _bincount(input, weights, minlength=minlength)


@op(half=True)
def _bincount(x, weights, *, minlength):
    x = x.astype(np.int64)
    if x.shape[0] and int(x.min()) < 0:
        raise RuntimeError(f"bincount(): expected no negative numbers, got {int(x.min())}")
    y = np.bincount(x, None if weights is None else weights.astype(np.float64), minlength)
    if weights is None or not x.shape[0]:
        return y.astype(np.int64), None
    return y.astype(np.float32 if weights.dtype == np.float32 else np.float64), None


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of `bins` equal parts of the range from `min` to `max`.

    Elements outside are not counted; the last part includes `max`. With min = max the range is the input's.

    Raises:
        NotImplementedError: `input` isn't floating-point.
        RuntimeError: no bins; `max` is less than `min`; an infinite range.

    >>> mytorch.tensor([0.0, 1.0, 2.0, 2.0]).histc(bins=2)
    tensor([1.00000 3.00000])
    """
    require_tensor(input, "histc")
    if not is_floating_point(input.dtype):
        raise NotImplementedError(f"histc(): expected a floating-point dtype, got {input.dtype}")
    if bins <= 0 or max < min:
        raise RuntimeError(f"histc(): expected bins > 0 and min <= max, got {bins}, {min} and {max}")
    return _histc(input, bins=bins, low=min, high=max)


@op
def _histc(x, *, bins, low, high):
    x, dtype = x.reshape(-1).astype(np.float64), x.dtype
    in_force().once("a histogram")
    if low == high and x.size and has_values(x):
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite(high - low):
        raise RuntimeError(f"histc(): the range from {low} to {high} is not finite")
    if not has_values(x):  # how many counts there are doesn't depend on them
        return np.empty(bins, dtype, like=x), None
    x = x[(x >= low) & (x <= high)]
    position = np.minimum(((x - low) * (bins / (high - low))).astype(np.int64), bins - 1)
    return np.bincount(position, None, bins).astype(dtype), None


class Histogram(NamedTuple):
    """The result of `histogram`."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    input: Tensor, bins: int | Tensor, *, range: tuple[float, float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Histogram:
    """Returns (hist, bin_edges), the number of elements in each bin and the edges of the bins.

    Bin i has the elements from edge i to below edge i + 1; the last one includes its right edge. Elements
    outside are not counted.

    Args:
        input: float32 or float64.
        bins: the number of bins of equal width, or their edges, an increasing vector.
        range: of equal bins; by default from the least element to the largest.
        weight: what an element counts, in the input's shape.
        density: divide by the sum and by the width of each bin, so that the integral is 1.

    Raises:
        NotImplementedError: another dtype.
        RuntimeError: no bins, edges that are no vector, an infinite range, a weight that doesn't fit.

    >>> mytorch.histogram(mytorch.tensor([0.0, 1.0, 2.0, 2.0]), bins=2)
    Histogram(hist=tensor([1.00000 3.00000]), bin_edges=tensor([0.00000 1.00000 2.00000]))
    """
    require_tensor(input, "histogram")
    if input.dtype not in (np.float32, np.float64):
        raise NotImplementedError(f"histogram(): expected float32 or float64, got {input.dtype}")
    if weight is not None and (weight.shape != input.shape or weight.dtype != input.dtype):
        raise RuntimeError(
            f"histogram(): expected a weight of {input.dtype} in the shape {list(input.shape)}, "
            f"got {weight.dtype} of {list(weight.shape)}"
        )
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or bins.shape[0] < 2 or bins.dtype != input.dtype:
            raise RuntimeError(
                f"histogram(): expected 2 or more edges of {input.dtype} in a vector, "
                f"got {bins.dtype} of shape {list(bins.shape)}"
            )
        if range is not None:
            raise TypeError(f"histogram(): range={range} is for a number of bins, got a tensor of edges")
        edges = bins.clone()
    else:
        edges = _equal_bins(input, bins, range)
    return Histogram(_histogram(input.detach(), edges, weight, density=density), edges)


def _equal_bins(x: Tensor, bins: int, span: tuple[float, float] | None) -> Tensor:
    """Returns the edges of equal bins."""
    if bins <= 0:
        raise RuntimeError(f"histogram(): bins must be > 0, got {bins}")
    if span is None:
        span = (float(x.min()), float(x.max())) if x.numel() else (0.0, 1.0)
    low, high = span
    if not (np.isfinite(low) and np.isfinite(high)) or low > high:
        raise RuntimeError(f"histogram(): expected a finite range with min <= max, got {low} to {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)


@op
def _histogram(x, edges, weight, *, density):
    x, count = x.reshape(-1), edges.shape[0] - 1
    bin_of = np.searchsorted(edges, x, side="right") - 1
    bin_of = np.where(x == edges[-1], count - 1, bin_of)
    inside = (x >= edges[0]) & (x <= edges[-1])
    each = None if weight is None else weight.reshape(-1)[inside].astype(np.float64)
    hist = np.bincount(bin_of[inside], each, count)[:count].astype(x.dtype)
    return hist / (np.sum(hist) * np.diff(edges)) if density else hist, None
