"""
exp, sigmoid and tanh for float32 as polynomials, which vectorize; in a compiled loop NumPy's and the C
library's functions are scalar calls. Errors are at most about 2 ulp; NaN, inf and overflow are those of the
exact functions, and subnormal results may be 0.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ....backends.jit import device, has_instructions

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
INF = np.float32(math.inf)

_LOG2_E = np.float32(math.log2(math.e))
_LN2_HIGH = np.float32(math.log(2))
_LN2_LOW = np.float32(math.log(2) - float(_LN2_HIGH))
_LOWEST, _HIGHEST = np.float32(-87.33654), np.float32(88.72283)  # exp(x) is normal and finite between them
# exp(r) = 1 + r + r^2 (c0 + c1 r + …) for |r| <= log(2) / 2: a minimax fit of relative error 2e-8 or less.
_C0, _C1, _C2, _C3, _C4, _C5 = (
    np.float32(c)
    for c in (0.50000001201, 0.16666665459, 0.041665795894, 0.0083334519073, 0.0013981999507, 0.000198756915)
)


def _in_wide_registers(function: ir.Function) -> None:
    """Lets the loops of a function use 512-bit registers where the CPU has them; LLVM's default is often 256.

    The default is right for loops bound by memory bandwidth, but polynomials are a third faster.
    """
    set.add(function.attributes, '"prefer-vector-width"="512"')  # llvmlite's own add() refuses it


@intrinsic
def wide_registers(typing_context):
    """`_in_wide_registers` as a statement, for the prange loop that it is in."""

    def generate(context, builder, signature, args):
        _in_wide_registers(builder.function)
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def fma(typing_context, x, y, z):
    """x y + z, rounded once; never reordered, as other sums may be by FASTMATH of `backends.jit`.

    For a CPU without FMA, LLVM would make a product and a sum of it, which are reordered; in float64 the
    product is exact.
    """

    def generate(context, builder, signature, args):
        if has_instructions("fma"):
            return builder.fma(*args)
        x, y, z = [builder.fpext(a, ir.DoubleType()) for a in args]
        total = builder.fadd(builder.fmul(x, y, flags=("nsz",)), z, flags=("nsz",))
        return builder.fptrunc(total, ir.FloatType())

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def _times_power_of_two(typing_context, x, n):
    """x 2^n for normal numbers: n is added to the bits of the exponent."""

    def generate(context, builder, signature, args):
        _in_wide_registers(builder.function)
        x, n = args
        bits = builder.add(
            builder.bitcast(x, ir.IntType(32)), builder.shl(n, ir.Constant(ir.IntType(32), 23))
        )
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.float32, types.int32), generate


@device
def _reduced(x):
    """k and r of x = k log(2) + r, |r| <= log(2) / 2, with log(2) as a sum of two (Cody & Waite, 1980)."""
    k = np.floor(x * _LOG2_E + HALF)
    return k, fma(-k, _LN2_LOW, fma(-k, _LN2_HIGH, x))


@device
def _tail(r):
    """(exp(r) - 1 - r) / r for |r| <= log(2) / 2"""
    p = _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r + _C1
    p = p * r + _C0
    return p * r


@device
def exp32(x):
    """e^x; subnormal results are 0."""
    k, r = _reduced(x)
    y = _times_power_of_two(fma(_tail(r), r, r) + ONE, np.int32(k))
    y = ZERO if x < _LOWEST else y
    return INF if x > _HIGHEST else y


@device
def sigmoid32(x):
    """1 / (1 + e^-x)"""
    return ONE / (ONE + exp32(-x))


_FAR = np.float32(20)  # tanh(x) is 1 from half of it


@device
def tanh32(x):
    """m / (m + 2), m = e^2|x| - 1 = 2^k (e^r - 1) + (2^k - 1) without cancellation, with the sign of x."""
    a = TWO * abs(x)
    k, r = _reduced(_FAR if a > _FAR else a)
    power = _times_power_of_two(ONE, np.int32(k))
    m = fma(power, fma(_tail(r), r, r), power - ONE)
    return math.copysign(m / (m + TWO), x)
