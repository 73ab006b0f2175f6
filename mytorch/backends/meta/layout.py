"""What stands for a meta array, for NumPy: its layout and its sample.

A *layout* has the shape, strides and dtype of the meta array. Its `array` is a NumPy array over sixteen bytes
of memory, whose elements must never be read or written. Whatever NumPy does without looking at elements
(basic indexing, transposing, broadcasting, reshaping without a copy) it does to these arrays: strides and
errors are NumPy's.

A *sample* has real elements, at most two along each dim, in the memory order of the meta array. Whatever
NumPy computes it computes of samples: the result has the dtype and the memory order of the real one, and a
rule says its shape.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..address import address_of

_BYTES = np.zeros(16, np.uint8)  # of the widest dtype, complex128
ADDRESS = address_of(_BYTES)  # of the array of each layout

Shape = tuple[int, ...]
_FACTS = ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes")


class Layout:
    """The shape, strides and dtype of an array; layouts that are equal are one object, see `layout`.

    Attributes:
        array: a NumPy array of this layout, whose elements must not be read.
    """

    __slots__ = ("array", *_FACTS, "__weakref__")

    def __init__(self, array: np.ndarray):
        self.array = array
        for name in _FACTS:
            setattr(self, name, getattr(array, name))

    @property
    def flags(self) -> Any:
        return self.array.flags

    def __reduce__(self):
        return layout, (self.shape, self.strides, self.dtype, self.flags.writeable)


_layouts: WeakValueDictionary[tuple, Layout] = WeakValueDictionary()


def layout(shape: Shape, strides: Shape | None, dtype: np.dtype, writeable: bool = True) -> Layout:
    """Returns the layout with these strides, in bytes; None for C order."""
    shape = tuple(map(index, shape))
    strides = steps(shape, range(len(shape)), dtype.itemsize) if strides is None else strides
    key = shape, tuple(map(index, strides)), id(dtype), writeable  # equal dtypes may differ, as "l" and "q"
    found = _layouts.get(key)
    if found is None:
        element = _BYTES[: dtype.itemsize].view(dtype)
        found = Layout(np.lib.stride_tricks.as_strided(element, shape, strides, writeable=writeable))
        found.dtype = dtype  # the key is the id of this object
        _layouts[key] = found
    return found


def layout_of(x: np.ndarray) -> Layout:
    """Returns the layout of a NumPy array."""
    return layout(x.shape, x.strides, x.dtype, x.flags.writeable)


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
def sample_of(x: Layout) -> np.ndarray:
    """Returns the sample, of ones, for a layout; it is shared by all callers."""
    shape, order = cut(x.shape), memory_order(x)
    memory = [1 if x.strides[d] == 0 else shape[d] for d in order]
    ones = np.ones(memory, x.dtype).transpose(np.argsort(order))
    ones = ones[tuple([slice(None, None, -1 if step < 0 else 1) for step in x.strides])]
    return np.broadcast_to(ones, shape)  # which is read-only


def memory_order(x: Layout | np.ndarray) -> list[int]:
    """Returns the dims from the one with the longest stride to the one with the shortest."""
    return sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))


def like_sample(shape: Shape, result: np.ndarray) -> Layout:
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
