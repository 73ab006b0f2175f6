"""
float16 in compiled loops: Numba has no such type, so kernels get `bits_of(array)` and load and store elements
with `upcast` and `downcast_like`. Both leave float32 unchanged, so that one kernel serves both dtypes.
"""

from __future__ import annotations

import functools
import platform

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

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
    return bool(binding.get_host_cpu_features().get("f16c"))


@intrinsic
def upcast(typing_context, x):
    """float32 of a float32, or of the bits of a float16."""
    if x == types.float32:
        return types.float32(x), lambda context, builder, signature, args: args[0]
    if x != types.uint16:
        raise TypingError(f"upcast(): float32 or uint16, got {x}")

    def generate(context, builder, signature, args):
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
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32, like), generate
