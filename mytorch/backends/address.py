"""Where arrays lie in memory: what kernels and BLAS get for them."""

from __future__ import annotations

from ctypes import c_void_p

import numpy as np

# In NumPy's C API an array begins with Python's own head and the pointer to its data (PyArrayObject_fields).
# https://numpy.org/doc/stable/reference/c-api/types-and-structures.html#c.PyArrayObject
_POINTER = object.__basicsize__


def _asked(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _read(x: np.ndarray) -> int:
    return c_void_p.from_address(id(x) + _POINTER).value


def _choose():
    """Reading the pointer takes a tenth of the time: the interface describes the array from head to foot."""
    whole = np.zeros((3, 4), np.float32)
    return _read if all(_read(x) == _asked(x) for x in (whole, whole.T, whole[1:, ::-2])) else _asked


address_of = _choose()
"""`address_of(x)` is the address of the first element of a NumPy array."""
