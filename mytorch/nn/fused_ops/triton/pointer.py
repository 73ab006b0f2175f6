"""Arrays as arguments of Triton's kernels."""

from __future__ import annotations

from ....backends.address import address_of
from ....backends.device import RawArray


class Pointer:
    """An array's address and dtype, which is all that Triton's launcher reads.

    The interpreter uses the other methods to copy PyTorch's tensors to the CPU and back. A NumPy array needs
    no copy: its pointer returns itself, and the kernel works in place.
    """

    __slots__ = ("array", "dtype", "shape", "_address")

    def __init__(self, array: RawArray):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self._address = address_of(array)

    def data_ptr(self) -> int:
        return self._address

    def untyped_storage(self) -> Pointer:
        return self

    cpu = untyped_storage

    def new_empty(self, *_: object, **__: object) -> Pointer:
        return self

    set_ = copy_ = new_empty

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.dtype.itemsize for step in self.array.strides)
