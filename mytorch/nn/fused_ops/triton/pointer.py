"""An array, as Triton wants to see it."""

from __future__ import annotations

from typing import Any

import numpy as np


class Pointer:
    """What Triton gets for an array: all that it wants is an address and a dtype.

    The other methods are those with which the interpreter copies a tensor of PyTorch to the CPU and back. A
    NumPy array is there already: its pointer says that it is its own copy, and the kernel works in place.
    """

    __slots__ = ("array", "dtype", "shape", "_address")

    def __init__(self, array: Any):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self._address = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr

    def data_ptr(self) -> int:
        return self._address

    def untyped_storage(self) -> Pointer:
        return self

    cpu = untyped_storage

    def new_empty(self, *_: Any, **__: Any) -> Pointer:
        return self

    set_ = copy_ = new_empty

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.dtype.itemsize for step in self.array.strides)
