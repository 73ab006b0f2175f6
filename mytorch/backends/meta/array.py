"""MetaArray: a raw array without elements, behind NumPy's two protocols."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..address import Address, address_of
from ..door import DEVICES, OtherArray, RawArray
from ..dtypes import DTypeLike
from .layout import ADDRESS, Layout, Shape, cut, layout, layout_of, like_sample, steps
from .storage import Storage

NO_DATA = "Cannot copy out of meta tensor; no data!"


class Pointer(NamedTuple):
    """Where an array begins; the name of the attribute is CuPy's."""

    ptr: int


class MetaArray(OtherArray, np.lib.mixins.NDArrayOperatorsMixin):
    """An array that has a shape, strides, a dtype and a place in a storage, but no elements.

    Made by the functions of `creation`, and by NumPy's functions of other meta arrays. Files that import this
    one add what needs rules: `ufuncs` adds `__array_ufunc__`, `functions` `__array_function__`, `indexing`
    `__getitem__` and `__setitem__`, `methods` and `writing` the methods.

    Attributes:
        layout: its shape, strides and dtype.
        base: the array that owns the storage, for a view; else None.
        storage: what it would lie in.
        offset: where it begins in it, in bytes.
    """

    __slots__ = ("layout", "base", "storage", "offset", "__weakref__")
    __hash__ = None

    shape = property(attrgetter("layout.shape"))
    strides = property(attrgetter("layout.strides"))
    dtype = property(attrgetter("layout.dtype"))
    ndim = property(attrgetter("layout.ndim"))
    size = property(attrgetter("layout.size"))
    itemsize = property(attrgetter("layout.itemsize"))
    nbytes = property(attrgetter("layout.nbytes"))
    flags = property(attrgetter("layout.flags"))
    device = DEVICES["meta"]

    @property
    def data(self) -> Pointer:
        return Pointer(self.storage.start + self.offset)

    @property
    def address(self) -> Address:
        found = Address(self.data.ptr)
        found.array = self
        return found

    def __len__(self) -> int:
        return len(self.layout.array)

    def __iter__(self):
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # What needs elements.

    def item(self, *args: object) -> NoReturn:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    __bool__ = __int__ = __float__ = __complex__ = item

    def __index__(self) -> NoReturn:
        if self.dtype.kind not in "iu" or self.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        self.item()

    def tolist(self) -> NoReturn:
        raise NotImplementedError(NO_DATA)

    def __array__(self, dtype=None, copy=None) -> NoReturn:
        raise TypeError("can't convert a meta array to NumPy: it has no data")

    __dlpack__ = __dlpack_device__ = __array__

    def __repr__(self) -> str:
        return f"MetaArray(shape={self.shape}, strides={self.strides}, dtype={self.dtype})"


OPERANDS = (MetaArray, np.ndarray, np.generic, int, float, complex, list, tuple, type(None))
_make = object.__new__


def new_of(layout: Layout) -> MetaArray:
    """Returns an array with this layout and a storage of its own."""
    self = _make(MetaArray)
    self.layout, self.base, self.storage, self.offset = layout, None, Storage(layout.nbytes), 0
    return self


def new(shape: int | Shape, dtype: DTypeLike = float, order: str = "C") -> MetaArray:
    """Returns a new array in C order, or in Fortran's with order="F"."""
    shape, dtype = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape), np.dtype(dtype)
    if shape and min(shape) < 0:
        raise ValueError("negative dimensions are not allowed")
    if math.prod(n or 1 for n in shape) * dtype.itemsize >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    dims = range(len(shape)) if order != "F" else reversed(range(len(shape)))
    return new_of(layout(shape, steps(shape, dims, dtype.itemsize), dtype))


def view(x: MetaArray, layout: Layout, offset: int = 0) -> MetaArray:
    """Returns a view of `x` with this layout, which begins `offset` bytes after `x`."""
    self = _make(MetaArray)
    self.layout, self.storage, self.offset = layout, x.storage, x.offset + offset
    self.base = x if x.base is None else x.base
    return self


def view_as(x: MetaArray, made: np.ndarray) -> MetaArray:
    """Returns a view of `x` as NumPy has made one, without a copy, of `x.layout.array`."""
    return view(x, layout_of(made), address_of(made) - ADDRESS)


def from_result(result: object, shape: Any, checked: bool = True) -> Any:
    """Returns new arrays of these shapes for what a function returned for samples.

    Args:
        result: an array, a number, or a tuple of these.
        shape: one shape, or one for each array in the tuple.
        checked: the result must have this shape, each dim cut to two; a sum of sizes hasn't.
    """
    if isinstance(result, tuple):
        found = [from_result(*pair) for pair in zip(result, shape, strict=True)]
        return result._make(found) if hasattr(result, "_make") else tuple(found)
    result, shape = np.asarray(result), tuple(shape)
    if checked and result.shape != cut(shape):
        raise NotImplementedError(f"meta tensors: the rule says shape {shape}, the sample has {result.shape}")
    return new_of(like_sample(shape, result))


def like(x: RawArray) -> MetaArray:
    """Returns the meta array for any array, in the same memory order."""
    return new_of(like_sample(x.shape, x))
