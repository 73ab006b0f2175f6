"""Resampling of one dim, as used by padding, interpolation and adaptive average pooling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.tensor import Tensor
from ...ops import reshape, squeeze, sum
from ...ops.dims import fixed_size
from ...ops.gather_scatter import gather_nd


@dataclass(frozen=True, eq=False)
class Taps:
    """A sparse linear map of one dim: y[o] = sum over k of weight[o, k] x[index[o, k]].

    index:  (out, taps)
    weight: (out, taps), or None for one tap of weight 1
    """

    index: np.ndarray
    weight: np.ndarray | None = None


def resample(x: Tensor, taps: Taps, dim: int) -> Tensor:
    """Returns x with `dim`, which is not negative, resampled."""
    y = gather_nd(x, Tensor(taps.index, device=x.device), dims=(dim,))  # (…, out, taps, …)
    if taps.weight is None:
        return squeeze(y, dim + 1)
    weight = Tensor(taps.weight, dtype=x.dtype, device=x.device)
    return sum(y * reshape(weight, (*weight.shape, *[1] * (x.ndim - 1 - dim))), dim + 1)


def bins(n: int, size: int) -> Taps:
    """Returns the mean over each of `size` bins: bin o of n elements is floor(o n / size) to
    ceil((o + 1) n / size).

    Shorter bins repeat their last element, whose weight is divided among the copies.
    """
    index = bin_index(n, size)
    taps = index.shape[1]
    last = index == index[:, -1:]
    length = taps + 1 - last.sum(1, keepdims=True)
    return Taps(index, 1 / (length * np.where(last, taps + 1 - length, 1)))


def bin_index(n: int, size: int) -> np.ndarray:
    """Returns the elements of each bin, (size, length of the longest); shorter bins repeat their last one."""
    n, size = fixed_size(n), fixed_size(size)
    o = np.arange(size)
    first, end = o * n // size, ((o + 1) * n + size - 1) // size
    return np.minimum(first[:, None] + np.arange(np.max(end - first, initial=1)), end[:, None] - 1)
