"""Memory by its address: arrays of any strides in kernels, without a compiled version for each layout."""

from __future__ import annotations

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from ....backends.jit import device


def address(x: np.ndarray) -> int:
    """Where the first element of an array is."""
    return x.__array_interface__["data"][0]


@device
def floats(place, count):
    """The `count` float32 numbers that begin at an address, as an array."""
    return carray(_pointer(place), (count,))


@intrinsic
def _pointer(typing_context, place):
    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), generate
