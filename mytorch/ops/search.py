"""Binary search, bins and histograms."""

from __future__ import annotations

import numpy as np

from ..backends.dtypes import is_floating_point
from ..core.op import NUMBERS, op, require_tensor
from ..core.tensor import Tensor
from .create import tensor
from .gather_along import take_along_dim

__all__ = ["searchsorted", "bucketize", "bincount", "histc"]


def searchsorted(
    sorted_sequence: Tensor, input: Tensor | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
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
    if low == high and x.size:
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite(high - low):
        raise RuntimeError(f"histc(): the range from {low} to {high} is not finite")
    x = x[(x >= low) & (x <= high)]
    position = np.minimum(((x - low) * (bins / (high - low))).astype(np.int64), bins - 1)
    return np.bincount(position, None, bins).astype(dtype), None
