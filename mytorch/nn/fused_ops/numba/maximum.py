"""The maximum of two float32 numbers, in a form that vectorizes, unlike max()."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def maximum32(typing_context, x, y):
    """max(x, y), NaN if one of them is."""

    def generate(context, builder, signature, args):
        two = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 2)
        return builder.call(builder.module.declare_intrinsic("llvm.maximum", [ir.FloatType()], two), args)

    return types.float32(types.float32, types.float32), generate
