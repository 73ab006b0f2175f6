"""MetaArray: a raw array without elements, behind NumPy's two protocols."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..address import Address, address_of
from ..device import META, RawArray, device
from ..dtypes import DTypeLike
from . import layout as layouts
from .layout import Shape
from .storage import Storage

NO_DATA = "Cannot copy out of meta tensor; no data!"


class Pointer(NamedTuple):
    """Where an array begins; the name of the attribute is CuPy's."""

    ptr: int


class MetaArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that has a shape, strides, a dtype and a place in a storage, but no elements.

    Made by the functions of `creation`, and by NumPy's functions of other meta arrays.

    Attributes:
        layout: a NumPy array of its shape, strides and dtype, whose elements must not be read.
        base: the array that owns the storage, for a view; else None.
        storage: what it would lie in.
    """

    __slots__ = ("layout", "base", "storage", "__weakref__")
    __hash__ = None

    shape = property(lambda self: self.layout.shape)
    strides = property(lambda self: self.layout.strides)
    dtype = property(lambda self: self.layout.dtype)
    ndim = property(lambda self: self.layout.ndim)
    size = property(lambda self: self.layout.size)
    itemsize = property(lambda self: self.layout.itemsize)
    nbytes = property(lambda self: self.layout.nbytes)
    flags = property(lambda self: self.layout.flags)
    T = property(lambda self: view(self, self.layout.T))
    mT = property(lambda self: view(self, self.layout.mT))

    @property
    def device(self) -> device:
        return META

    @property
    def data(self) -> Pointer:
        return Pointer(self.storage.start + address_of(self.layout) - layouts.ADDRESS)

    @property
    def address(self) -> Address:
        found = Address(self.data.ptr)
        found.array = self
        return found

    @property
    def real(self) -> MetaArray:
        return view(self, self.layout.real) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> MetaArray:
        return view(self, self.layout.imag) if self.dtype.kind == "c" else new(self.shape, self.dtype)

    @real.setter
    def real(self, value: object) -> None:
        self.real[...] = value

    @imag.setter
    def imag(self, value: object) -> None:
        self.imag[...] = value

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        from .ufuncs import call_ufunc

        if not all([isinstance(x, _OPERANDS) for x in inputs]):
            return NotImplemented  # a Tensor's or an Array's call
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        from .functions import call_function

        if not all([issubclass(kind, _OPERANDS) for kind in types]):
            return NotImplemented
        return call_function(function, args, kwargs)

    def __getitem__(self, index):
        from .indexing import getitem

        return getitem(self, index)

    def __setitem__(self, index, value):
        from .indexing import setitem

        setitem(self, index, value)

    def __len__(self) -> int:
        return len(self.layout)

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


_OPERANDS = (MetaArray, np.ndarray, np.generic, int, float, complex, list, tuple, type(None))


def new_of(layout: np.ndarray) -> MetaArray:
    """Returns an array with this layout and a storage of its own."""
    self = object.__new__(MetaArray)
    self.layout, self.base, self.storage = layout, None, Storage(layout.nbytes)
    return self


def new(shape: int | Shape, dtype: DTypeLike = float, order: str = "C") -> MetaArray:
    """Returns a new array in C order, or in Fortran's with order="F"."""
    shape, dtype = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape), np.dtype(dtype)
    if shape and min(shape) < 0:
        raise ValueError("negative dimensions are not allowed")
    if math.prod(n or 1 for n in shape) * dtype.itemsize >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    dims = range(len(shape)) if order != "F" else reversed(range(len(shape)))
    return new_of(layouts.layout(shape, layouts.steps(shape, dims, dtype.itemsize), dtype))


def view(x: MetaArray, layout: np.ndarray) -> MetaArray:
    """Returns a view of `x` with this layout, which NumPy made of that of `x` without a copy."""
    self = object.__new__(MetaArray)
    self.layout, self.storage = layout, x.storage
    self.base = x if x.base is None else x.base
    return self


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
    if checked and result.shape != layouts.cut(shape):
        raise NotImplementedError(f"meta tensors: the rule says shape {shape}, the sample has {result.shape}")
    return new_of(layouts.like_sample(shape, result))


def like(x: RawArray) -> MetaArray:
    """Returns the meta array for any array, in the same memory order."""
    return new_of(layouts.like_sample(x.shape, x))
