"""
float16 in compiled loops: Numba has no such type, so kernels get `bits_of(array)` and load and store elements
with `upcast` and `downcast_like`. Both leave float32 unchanged, so that one kernel serves both dtypes.
"""

from __future__ import annotations

import functools
import platform

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from ....backends.jit import has_instructions
from ...functional.composite import Unsupported

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def require_dtypes(*arrays: np.ndarray) -> None:
    """Raises `Unsupported` unless the arrays are float32, or float16 and this CPU can convert that."""
    for a in arrays:
        if a.dtype not in (SINGLE, HALF):
            raise Unsupported(f"the CPU's kernels compute in float32: none for {a.dtype}")
        if a.dtype == HALF and not _has_half():
            raise Unsupported("this CPU has no instructions for float16")


def bits_of(x: np.ndarray) -> np.ndarray:
    """Returns the array for a kernel: float16 as a uint16 view."""
    return x.view(np.uint16) if x.dtype == HALF else x


def singles(*scalars: float) -> list[np.float32]:
    """Returns scalars as float32, the type of a kernel's arguments."""
    return [np.float32(scalar) for scalar in scalars]


@functools.cache
def _has_half() -> bool:
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    return has_instructions("f16c")


@intrinsic
def upcast(typing_context, x):
    """float32 of a float32, or of the bits of a float16."""
    if x == types.float32:
        return types.float32(x), lambda context, builder, signature, args: args[0]
    if x != types.uint16:
        raise TypingError(f"upcast(): float32 or uint16, got {x}")

    def generate(context, builder, signature, args):
        if not _has_half():
            return _upcast_bits(builder, args[0])
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(x), generate


def _upcast_bits(builder, bits):
    """The same by integers, where LLVM would call a function that most systems lack, and end the process."""
    integer, single = ir.IntType(32), ir.FloatType()
    bits = builder.zext(bits, integer)
    magnitude = builder.shl(builder.and_(bits, integer(0x7FFF)), integer(13))
    scaled = builder.fmul(builder.bitcast(magnitude, single), single(2.0**112))  # the exponents' difference
    finite = builder.bitcast(scaled, integer)
    infinite = builder.icmp_unsigned(">=", magnitude, integer(0x7C00 << 13))  # or NaN
    number = builder.select(infinite, builder.or_(finite, integer(0x7F800000)), finite)
    sign = builder.shl(builder.and_(bits, integer(0x8000)), integer(16))
    return builder.bitcast(builder.or_(number, sign), single)


@intrinsic
def downcast_like(typing_context, x, like):
    """A float32 in the dtype of `like`: itself, or the bits of the nearest float16."""
    if like == types.float32:
        return types.float32(types.float32, like), lambda context, builder, signature, args: args[0]
    if like != types.uint16:
        raise TypingError(f"downcast_like(): float32 or uint16, got {like}")

    def generate(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32, like), generate
