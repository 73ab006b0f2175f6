"""The maximum and the minimum of two float32 numbers, in a form that vectorizes, unlike max() and min()."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _generator(name: str) -> Callable:
    def generate(context, builder, signature, args):
        two = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 2)
        return builder.call(builder.module.declare_intrinsic(name, [ir.FloatType()], two), args)

    return generate


@intrinsic
def maximum32(typing_context, x, y):
    """max(x, y), NaN if one of them is."""
    return types.float32(types.float32, types.float32), _generator("llvm.maximum")


@intrinsic
def minimum32(typing_context, x, y):
    """min(x, y), NaN if one of them is."""
    return types.float32(types.float32, types.float32), _generator("llvm.minimum")
