"""What is added to the array: operators, and methods with the signatures of the real CuPy."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import graph, indexing
from .array import as_cupy, is_view, ndarray, raw, wrap
from .functions import checked
from .names import NAMES
from .special import COMPUTE

ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "matmul": np.matmul, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "divmod": np.divmod, "pow": np.power,
    "lshift": np.left_shift, "rshift": np.right_shift, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
    "ge": np.greater_equal,
}
UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}


def _add_operators() -> None:
    for name, ufunc in {**ARITHMETIC, **COMPARISONS}.items():
        setattr(ndarray, f"__{name}__", _binary(ufunc, name))
    for name, ufunc in ARITHMETIC.items():
        setattr(ndarray, f"__r{name}__", lambda self, other, ufunc=ufunc: ufunc(other, self))
        if name not in ("matmul", "divmod"):
            setattr(ndarray, f"__i{name}__", _in_place(ufunc))
    for name, ufunc in UNARY.items():
        setattr(ndarray, f"__{name}__", lambda self, ufunc=ufunc: ufunc(self))


def _binary(ufunc: Callable, name: str) -> Callable:
    def operator(self, other):
        if _defers(other):
            return NotImplemented
        if name in ("eq", "ne") and (other is None or type(other).__eq__ is object.__eq__):
            return wrap(np.full(self.shape, name == "ne"))  # no number equals such an object
        return ufunc(self, other)  # NumPy asks everyone's `__array_ufunc__`, ours too

    return operator


def _defers(other: Any) -> bool:
    """Does the class of `other` want to handle operators with a CuPy array itself?"""
    if hasattr(other, "__array_ufunc__"):
        return other.__array_ufunc__ is None
    return getattr(other, "__array_priority__", 0) > ndarray.__array_priority__


def _in_place(ufunc: np.ufunc) -> Callable:
    def operator(self, other):
        from .modules import cupy  # it needs this module first

        return getattr(cupy, ufunc.__name__)(self, other, self)

    return operator


# Python's own conversions copy to the host and wait.


def _bool(self) -> bool:
    if self.size == 0:
        warnings.warn("the truth value of an empty array is ambiguous", DeprecationWarning, stacklevel=2)
        return False
    return bool(self.get())


PYTHON = {
    "__bool__": _bool,
    "__int__": lambda self: int(self.get()),
    "__float__": lambda self: float(self.get()),
    "__complex__": lambda self: complex(self.get()),
    "__bytes__": lambda self: bytes(self.get()),
    "__repr__": lambda self: repr(self.get()),
    "__str__": lambda self: str(self.get()),
    "__format__": lambda self, spec: format(self.get(), spec),
    "__copy__": lambda self: self.copy(),
    "__reduce__": lambda self: (_rebuild, (self.get(order="A"),)),
}


def _deepcopy(self, memo: dict) -> ndarray:
    with self.device:
        return self.copy()


def _rebuild(array: np.ndarray) -> ndarray:
    return wrap(array)


# Methods that don't go through NumPy's method of the same name.


def get(self, stream=None, order="C", out=None, blocking=True):
    graph.refuse_waiting()
    if out is None:
        return np.array(self._numpy, order=order)
    if not isinstance(out, np.ndarray) or out.dtype != self.dtype:
        raise TypeError(f"`out` must be a numpy.ndarray of {self.dtype}")
    if out.shape != self.shape:
        raise ValueError(f"`out` must have shape {self.shape}, got {out.shape}")
    out[...] = self._numpy
    return out


@graph.taped
def set(self, arr, stream=None):
    if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype:
        raise TypeError(f"only a numpy.ndarray of {self.dtype} can be set, got {type(arr)}")
    if arr.shape != self.shape:
        raise ValueError(f"expected shape {self.shape}, got {arr.shape}")
    if not self.flags.forc:
        raise RuntimeError("cannot set a non-contiguous array")
    self._numpy[...] = arr


@graph.taped
def copy(self, order="C"):
    return wrap(np.array(self._numpy, order=order))


@graph.taped
def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
    if casting is not None or subok is not None:
        raise TypeError("astype: casting and subok are not supported by CuPy")
    made = raw(self).astype(dtype, order=order, copy=copy)
    return self if made is self._numpy else wrap(made)


def view(self, dtype=None, type=None):
    return wrap(self._numpy.view() if dtype is None else self._numpy.view(dtype), self)


@graph.taped
def fill(self, value):
    source = as_cupy(value)
    value = np.asarray(value, self.dtype) if source is None else raw(source)
    if value.ndim:
        raise ValueError("fill takes a number")
    raw(self)[...] = value


@graph.taped
def sort(self, axis=-1):
    if self.ndim == 0:
        raise np.exceptions.AxisError("sorting arrays of rank zero is not supported")
    if not self.flags.c_contiguous:
        raise NotImplementedError("sorting a non-contiguous array in place is not supported by CuPy")
    raw(self).sort(axis, kind="stable")


@graph.taped
def reshape(self, *shape, order="C"):
    shape = shape[0] if len(shape) == 1 else shape
    made = self._numpy.reshape(shape, order=order)
    return wrap(made, self if is_view(made, self._numpy) else None)


def _scatter(name: str) -> Callable:
    @graph.taped
    def method(self, slices, value):
        indexing.scatter(self, slices, value, name)

    return method


EXPLICIT = {
    "get": get, "set": set, "copy": copy, "astype": astype, "view": view, "fill": fill, "sort": sort,
    "reshape": reshape, "dumps": lambda self: pickle.dumps(self), "__deepcopy__": _deepcopy,
    "scatter_add": _scatter("add"), "scatter_max": _scatter("maximum"), "scatter_min": _scatter("minimum"),
}


def _add_methods() -> None:
    for name, method in {**PYTHON, **EXPLICIT}.items():
        setattr(ndarray, name, method)
    for name, entry in NAMES["cupy.ndarray"].items():
        compute = COMPUTE.get(name) or getattr(np.ndarray, name, None)
        if entry.parameters is not None and compute and name not in ndarray.__dict__:
            setattr(ndarray, name, checked(name, entry.signature("self"), compute))


_add_operators()
_add_methods()
