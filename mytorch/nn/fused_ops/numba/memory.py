"""Memory by its address: kernels for arrays of any strides, without compiling a version for each layout."""

from __future__ import annotations

import math

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from ....backends import gemm
from ....backends.address import address_of
from ....backends.jit import device
from ...functional.composite import Unsupported

_LINE = 16  # elements of a cache line


def aligned_array(shape: tuple[int, ...]) -> np.ndarray:
    """Returns an uninitialized array like `aligned`, outside kernels, of this shape."""
    count = math.prod(shape)
    memory = np.empty(count + _LINE, np.float32)
    skip = -(address_of(memory) // 4) % _LINE
    return memory[skip : skip + count].reshape(shape)


def require_openblas() -> None:
    """Raises `Unsupported` unless kernels can call NumPy's OpenBLAS."""
    if not gemm.is_available():
        raise Unsupported("NumPy has no OpenBLAS that could be called from a kernel")


@device
def floats(address, count):
    """The `count` float32 elements at an address, as an array."""
    return carray(pointer(address), (count,), np.float32)


@device
def aligned(count):
    """An array of `count` float32 elements aligned to a cache line, which makes OpenBLAS a tenth faster."""
    memory = np.empty(count + _LINE, np.float32)
    skip = -(memory.ctypes.data // 4) % _LINE
    return memory[skip : skip + count]


@intrinsic
def pointer(typing_context, address):
    """The address as what `carray` makes an array of."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate
