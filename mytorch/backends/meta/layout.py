"""Layouts and samples: the two kinds of NumPy arrays that stand for a meta array.

A *layout* has the shape, strides and dtype of the meta array, and lies over sixteen bytes of memory: its
elements must never be read or written. Whatever NumPy does without looking at elements (basic indexing,
transposing, broadcasting, reshaping without a copy) it does to layouts: strides and errors are NumPy's.

A *sample* has real elements, at most two along each dim, in the memory order of the meta array. Whatever
NumPy computes it computes of samples: the result has the dtype and the memory order of the real one, and a
rule says its shape.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from ..address import address_of

_BYTES = np.zeros(16, np.uint8)  # of the widest dtype, complex128
ADDRESS = address_of(_BYTES)

Shape = tuple[int, ...]


@functools.cache
def _element(dtype: np.dtype) -> np.ndarray:
    return _BYTES[: dtype.itemsize].view(dtype)


def layout(shape: Shape, strides: Shape | None, dtype: np.dtype) -> np.ndarray:
    """Returns the layout with these strides, in bytes; None for C order."""
    if strides is None:
        strides = steps(shape, range(len(shape)), dtype.itemsize)
    return np.lib.stride_tricks.as_strided(_element(dtype), shape, strides)


def steps(shape: Sequence[int], order: Iterable[int], itemsize: int) -> Shape:
    """Returns the strides of new memory in which the dims lie in this order, the outermost first."""
    strides, step = [0] * len(shape), itemsize
    for dim in reversed(list(order)):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def cut(shape: Shape) -> Shape:
    """Returns the shape of a sample."""
    return tuple([2 if n > 2 else n for n in shape])


@functools.lru_cache(maxsize=4096)
def _ones(shape: Shape, dtype: np.dtype) -> np.ndarray:
    ones = np.ones(shape, dtype)
    ones.flags.writeable = False  # shared by all callers
    return ones


def sample_of(x: np.ndarray) -> np.ndarray:
    """Returns the sample, of ones, for a layout."""
    shape = cut(x.shape)
    if x.flags.c_contiguous:
        return _ones(shape, x.dtype)
    order = memory_order(x)
    memory = [1 if x.strides[d] == 0 else shape[d] for d in order]
    ones = np.transpose(_ones(tuple(memory), x.dtype), np.argsort(order))
    ones = ones[tuple([slice(None, None, -1 if step < 0 else 1) for step in x.strides])]
    return np.broadcast_to(ones, shape)


def memory_order(x: np.ndarray) -> list[int]:
    """Returns the dims from the one with the longest stride to the one with the shortest."""
    return sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))


def like_sample(shape: Shape, result: np.ndarray) -> np.ndarray:
    """Returns the layout of new memory of this shape, in the order in which `result`, of samples, lies."""
    if result.flags.c_contiguous:
        return layout(shape, None, result.dtype)
    return layout(shape, steps(shape, memory_order(result), result.itemsize), result.dtype)


def sampled(x: object) -> object:
    """Returns the arguments of a function with samples in place of arrays; NumPy's arrays are cut as well."""
    kind = type(x)
    if kind is tuple or kind is list:
        return kind([sampled(item) for item in x])
    if kind is np.ndarray:
        return x[(slice(2),) * x.ndim] if x.ndim else x
    return sample_of(x.layout) if hasattr(x, "layout") else x
