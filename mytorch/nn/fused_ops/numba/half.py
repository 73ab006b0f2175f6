"""
float16 in compiled loops: Numba has no such type, so kernels get `bits_of(array)` and load and store elements
with `upcast` and `downcast_like`. Both leave float32 unchanged, so that one kernel serves both dtypes.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from ....backends.jit import has_instructions
from ...functional.composite import Unsupported

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def require_dtypes(*arrays: np.ndarray) -> None:
    """Raises `Unsupported` unless the arrays are float32 or float16."""
    for a in arrays:
        if a.dtype not in (SINGLE, HALF):
            raise Unsupported(f"the CPU's kernels compute in float32: none for {a.dtype}")


def bits_of(x: np.ndarray) -> np.ndarray:
    """Returns the array for a kernel: float16 as a uint16 view."""
    return x.view(np.uint16) if x.dtype == HALF else x


def singles(*scalars: float) -> list[np.float32]:
    """Returns scalars as float32, the type of a kernel's arguments."""
    return [np.float32(scalar) for scalar in scalars]


@intrinsic
def upcast(typing_context, x):
    """float32 of a float32, or of the bits of a float16."""
    if x == types.float32:
        return types.float32(x), lambda context, builder, signature, args: args[0]
    if x != types.uint16:
        raise TypingError(f"upcast(): float32 or uint16, got {x}")

    def generate(context, builder, signature, args):
        if not has_instructions("f16c"):
            return _upcast_bits(builder, args[0])
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(x), generate


@intrinsic
def downcast_like(typing_context, x, like):
    """A float32 in the dtype of `like`: itself, or the bits of the nearest float16."""
    if like == types.float32:
        return types.float32(types.float32, like), lambda context, builder, signature, args: args[0]
    if like != types.uint16:
        raise TypingError(f"downcast_like(): float32 or uint16, got {like}")

    def generate(context, builder, signature, args):
        if not has_instructions("f16c"):
            return _downcast_bits(builder, args[0])
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32, like), generate


# The same by integers: without instructions for it LLVM calls functions that most systems lack, and ends the
# process. float32 has 13 more bits behind the point, and an exponent that is larger by 112.


def _upcast_bits(builder, bits):
    integer, single = ir.IntType(32), ir.FloatType()
    bits = builder.zext(bits, integer)
    magnitude = builder.shl(builder.and_(bits, integer(0x7FFF)), integer(13))
    scaled = builder.fmul(builder.bitcast(magnitude, single), single(2.0**112))
    finite = builder.bitcast(scaled, integer)
    infinite = builder.icmp_unsigned(">=", magnitude, integer(0x7C00 << 13))  # or NaN
    number = builder.select(infinite, builder.or_(finite, integer(0x7F800000)), finite)
    sign = builder.shl(builder.and_(bits, integer(0x8000)), integer(16))
    return builder.bitcast(builder.or_(number, sign), single)


def _downcast_bits(builder, x):
    """Rounded to the nearest, ties to even; what is subnormal is rounded by a sum with 0.5, whose last bit is
    that of the smallest float16."""
    integer, single = ir.IntType(32), ir.FloatType()
    bits = builder.bitcast(x, integer)
    magnitude = builder.and_(bits, integer(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, integer(13)), integer(1))
    rounded = builder.add(builder.sub(magnitude, integer((112 << 23) - 0xFFF)), odd)
    half = builder.fadd(builder.bitcast(magnitude, single), single(0.5), flags=("nsz",))
    subnormal = builder.sub(builder.bitcast(half, integer), integer(126 << 23))
    is_subnormal = builder.icmp_unsigned("<", magnitude, integer(113 << 23))
    finite = builder.select(is_subnormal, subnormal, builder.lshr(rounded, integer(13)))
    is_nan = builder.icmp_unsigned(">", magnitude, integer(0x7F800000))
    special = builder.select(is_nan, integer(0x7E00), integer(0x7C00))
    is_finite = builder.icmp_unsigned("<", magnitude, integer((127 + 16) << 23))
    sign = builder.and_(builder.lshr(bits, integer(16)), integer(0x8000))
    return builder.trunc(builder.or_(builder.select(is_finite, finite, special), sign), ir.IntType(16))
