"""Memory by its address: arrays of any strides in kernels, without a compiled version for each layout."""

from __future__ import annotations

from numba import carray, types
from numba.extending import intrinsic

from ....backends.jit import device


@device
def floats(place, count):
    """The `count` float32 numbers that begin at an address, as an array."""
    return carray(_pointer(place), (count,))


@intrinsic
def _pointer(typing_context, place):
    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), generate
