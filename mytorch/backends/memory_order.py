"""The order of an array's dims in memory: functions of each element read memory from start to end, and their
results lie in memory as their inputs do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .device import RawArray

Order = tuple[int, ...] | None


def memory_order(x: RawArray) -> Order:
    """Returns the dims in the order in which a NumPy function of each element lays out its result, the
    outermost first; None if that is C order."""
    if x.flags.c_contiguous:
        return None
    if 0 in x.strides:  # what is expanded has no order: NumPy decides
        x = np.positive(x[(slice(2),) * x.ndim])
    return tuple(sorted(range(x.ndim), key=lambda d: -abs(x.strides[d])))


def flat(x: RawArray, order: Order) -> RawArray:
    """Returns the elements as a vector, the dims in this order: a view if memory allows it, else a copy."""
    return np.ascontiguousarray(x if order is None else x.transpose(order), like=x).reshape(-1)


def unflat(row: RawArray, shape: Sequence[int], order: Order) -> RawArray:
    """Returns the array of this shape whose `flat` is the row: its strides are ordered as the input's."""
    if order is None:
        return row.reshape(shape)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return row.reshape([shape[d] for d in order]).transpose(inverse)


def in_c_order(x: RawArray) -> RawArray:
    """Returns the array itself if its elements lie in C order, else a copy; of no dims, too."""
    return x if x.flags.c_contiguous else x.copy()
