"""The addresses of arrays, for kernels and BLAS."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any, NamedTuple

import numpy as np

# In NumPy's C API an array begins with Python's object header and the pointer to its data.
# https://numpy.org/doc/stable/reference/c-api/types-and-structures.html#c.PyArrayObject
_POINTER = object.__basicsize__


class Address(int):
    """The address that an array without elements would have.

    Attributes:
        array: it.
    """

    array: Any


class Pointer(NamedTuple):
    """Where an array begins; the name of the attribute is CuPy's."""

    ptr: int


def _of_others(x: Any) -> int:
    found = getattr(x, "address", None)
    return x.data.ptr if found is None else found  # CuPy's


def _from_interface(x: np.ndarray) -> int:
    found = getattr(x, "__array_interface__", None)
    return _of_others(x) if found is None else found["data"][0]


def _from_header(x: np.ndarray) -> int:
    if not isinstance(x, np.ndarray):
        return _of_others(x)
    return c_void_p.from_address(id(x) + _POINTER).value


def _choose():
    """Returns the faster function if it works: reading the pointer takes a tenth of the interface's time."""
    whole = np.zeros((3, 4), np.float32)
    works = all(_from_header(x) == _from_interface(x) for x in (whole, whole.T, whole[1:, ::-2]))
    return _from_header if works else _from_interface


address_of = _choose()
"""`address_of(x)` is the address of the first element of a raw array."""
