"""Memory by its address: arrays of any strides in kernels, without a compiled version for each layout."""

from __future__ import annotations

import math

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from ....backends.address import address_of
from ....backends.jit import device

_LINE = 16  # numbers


def aligned_array(shape: tuple[int, ...]) -> np.ndarray:
    """`aligned`, outside kernels, in this shape."""
    count = math.prod(shape)
    memory = np.empty(count + _LINE, np.float32)
    skip = -(address_of(memory) // 4) % _LINE
    return memory[skip : skip + count].reshape(shape)


@device
def floats(place, count):
    """The `count` float32 numbers that begin at an address, as an array."""
    return carray(_pointer(place), (count,))


@device
def aligned(count):
    """An array of `count` float32 numbers that begins with a cache line: OpenBLAS is a tenth faster on it."""
    memory = np.empty(count + _LINE, np.float32)
    skip = -(memory.ctypes.data // 4) % _LINE
    return memory[skip : skip + count]


@intrinsic
def _pointer(typing_context, place):
    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), generate
