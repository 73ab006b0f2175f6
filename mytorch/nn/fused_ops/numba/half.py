"""
float16 in compiled loops, where Numba has no such type: kernels get `bits_of(array)`, and load and store its
numbers with `widen` and `narrow_like`. Those leave float32 as it is, so one kernel is compiled for either.
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
    """Raise `Unsupported` unless the arrays are float32, or float16 and this CPU can convert that."""
    for a in arrays:
        if a.dtype not in (SINGLE, HALF):
            raise Unsupported(f"the CPU's kernels compute in float32: none for {a.dtype}")
        if a.dtype == HALF and not _has_half():
            raise Unsupported("this CPU has no instructions for float16")


def bits_of(x: np.ndarray) -> np.ndarray:
    """What a kernel gets for an array: float16 numbers as uint16 in the same memory."""
    return x.view(np.uint16) if x.dtype == HALF else x


def singles(*numbers: float) -> list[np.float32]:
    """Numbers as the arguments of a kernel."""
    return [np.float32(number) for number in numbers]


@functools.cache
def _has_half() -> bool:
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    return bool(binding.get_host_cpu_features().get("f16c"))


@intrinsic
def widen(typing_context, x):
    """float32 of a float32, or of the bits of a float16."""
    if x == types.float32:
        return types.float32(x), lambda context, builder, signature, args: args[0]
    if x != types.uint16:
        raise TypingError(f"widen(): float32 or uint16, got {x}")

    def generate(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(x), generate


@intrinsic
def narrow_like(typing_context, x, like):
    """A float32 in the dtype of `like`: itself, or the bits of the nearest float16."""
    if like == types.float32:
        return types.float32(types.float32, like), lambda context, builder, signature, args: args[0]
    if like != types.uint16:
        raise TypingError(f"narrow_like(): float32 or uint16, got {like}")

    def generate(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32, like), generate
