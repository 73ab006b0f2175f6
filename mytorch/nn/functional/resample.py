"""One dim made anew from a few elements of the old one: padding, interpolation and adaptive means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.tensor import Tensor
from ...ops import reshape, squeeze, sum
from ...ops.gather_scatter import gather_nd


@dataclass(frozen=True, eq=False)
class Taps:
    """Which elements the new ones are made of: number o is the sum over k of weight[o, k] x[index[o, k]].

    index:  (out, taps)
    weight: (out, taps), or None for one tap of weight 1
    """

    index: np.ndarray
    weight: np.ndarray | None = None


def resample(x: Tensor, taps: Taps, dim: int) -> Tensor:
    """x with `dim`, counted from the front, made anew."""
    y = gather_nd(x, Tensor(taps.index, device=x.device), dims=(dim,))  # (…, out, taps, …)
    if taps.weight is None:
        return squeeze(y, dim + 1)
    weight = Tensor(taps.weight, dtype=x.dtype, device=x.device)
    return sum(y * reshape(weight, (*weight.shape, *[1] * (x.ndim - 1 - dim))), dim + 1)


def bins(n: int, size: int) -> Taps:
    """The mean of each of `size` bins: bin o of n elements goes from floor(o n / size) to
    ceil((o + 1) n / size).

    In a bin that is shorter than others the last element stands for the missing ones; they share its weight.
    """
    index = bin_index(n, size)
    taps = index.shape[1]
    last = index == index[:, -1:]
    length = taps + 1 - last.sum(1, keepdims=True)
    return Taps(index, 1 / (length * np.where(last, taps + 1 - length, 1)))


def bin_index(n: int, size: int) -> np.ndarray:
    """The elements of each bin, (size, length of the longest); the last one is repeated in shorter bins."""
    o = np.arange(size)
    first, end = o * n // size, ((o + 1) * n + size - 1) // size
    return np.minimum(first[:, None] + np.arange(np.max(end - first, initial=1)), end[:, None] - 1)
