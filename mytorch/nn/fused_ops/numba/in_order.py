"""
x - y, x y and x / y as they are written. Other sums and products may be regrouped (FASTMATH of
`backends.jit`), and (x - largest) - shift as x - (largest + shift) loses all digits where the new group is
much larger than the result; (a s) b as (a b) s may overflow. A quotient by a root may become a product with
an approximation of 1 / sqrt(y), which is NaN for 0 and infinity.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_FLAGS = ("nsz", "contract")  # an instruction that has any flag gets no others; x y + z may be one


def _generator(operation: Callable) -> Callable:
    def generate(context, builder, signature, args):
        return operation(builder, *args, flags=_FLAGS)

    return generate


@intrinsic
def minus(typing_context, x, y):
    """x - y"""
    return types.float32(types.float32, types.float32), _generator(ir.IRBuilder.fsub)


@intrinsic
def times(typing_context, x, y):
    """x y"""
    return types.float32(types.float32, types.float32), _generator(ir.IRBuilder.fmul)


@intrinsic
def plus(typing_context, x, y):
    """x + y"""
    return types.float32(types.float32, types.float32), _generator(ir.IRBuilder.fadd)


@intrinsic
def over(typing_context, x, y):
    """x / y"""
    return types.float32(types.float32, types.float32), _generator(ir.IRBuilder.fdiv)
