"""
exp and tanh for float32 in loops, with fewer instructions than those of the kernels, `approximations`: the
nearest integer comes from an addition, and polynomials have a term less.

Errors are at most about 2 ulp; NaN, inf and overflow are those of the exact functions, and subnormal results
may be 0.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...backends.jit import device
from ...nn.fused_ops.numba.approximations import INF, ONE, TWO, ZERO, fma
from ...nn.fused_ops.numba.in_order import minus, times
from ...nn.fused_ops.numba.maximum import minimum32

_LOG2_E, _TWO_LOG2_E = np.float32(math.log2(math.e)), np.float32(2 * math.log2(math.e))
_LN2, _HALF_LN2 = np.float32(math.log(2)), np.float32(math.log(2) / 2)
_LN2_REST = np.float32(math.log(2) - float(_LN2))  # log(2) as a sum of two: Cody & Waite, 1980
_HALF_LN2_REST = np.float32(math.log(2) / 2 - float(_HALF_LN2))
_LOWEST, _HIGHEST = np.float32(-87.33654), np.float32(88.72283)  # e^x is normal and finite between them
_HALF_LOWEST = np.float32(-44.36141)
_FAR, _NEAR = np.float32(20), np.float32(43)  # tanh(x) is 1 from half of either, e^x is finite
# x + 1.5 2^23 is the integer next to x, which then lies in the last bits.
_ROUND = np.float32(1.5 * 2**23)
# e^r = 1 + r + r^2 (c0 + c1 r + …) for |r| <= log(2) / 2: a minimax fit, e^r - 1 is within 2e-8 of itself.
_FIT = (0.49999998154, 0.1666654362, 0.041667199862, 0.0083665206822, 0.0013882521561)
_C0, _C1, _C2, _C3, _C4 = (np.float32(c) for c in _FIT)
_D0, _D1, _D2, _D3, _D4 = (np.float32(c * 2 ** (k + 2)) for k, c in enumerate(_FIT))  # the same for e^2r


@intrinsic
def _times_power_of_two(typing_context, x, t):
    """x 2^k for t = 1.5 2^23 + k and normal numbers: k is added to the bits of the exponent."""

    def generate(context, builder, signature, args):
        x, t = (builder.bitcast(a, ir.IntType(32)) for a in args)
        bits = builder.add(x, builder.shl(t, ir.Constant(ir.IntType(32), 23)))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.float32, types.float32), generate


@device
def _reduced(x):
    """t = 1.5 2^23 + k, r and p of e^x = 2^k e^r, e^r = 1 + r + r^2 p, |r| <= log(2) / 2."""
    t = fma(x, _LOG2_E, _ROUND)
    k = minus(t, _ROUND)
    r = fma(-k, _LN2_REST, fma(-k, _LN2, x))
    return t, r, fma(fma(fma(fma(_C4, r, _C3), r, _C2), r, _C1), r, _C0)


@device
def exp32(x):
    """e^x; subnormal results are 0."""
    t, r, p = _reduced(x)
    y = _times_power_of_two(fma(fma(p, r, ONE), r, ONE), t)
    y = ZERO if x < _LOWEST else y
    return y if x <= _HIGHEST else x + INF


@device
def tanh32(x):
    """m / (m + 2), m = e^2|x| - 1 = 2^k (e^2r - 1) + (2^k - 1) without cancellation, with the sign of x."""
    t, r, p = _reduced(minimum32(TWO * abs(x), _FAR))
    power = _times_power_of_two(ONE, t)
    m = fma(power, fma(times(p, r), r, r), minus(power, ONE))
    return math.copysign(m / (m + TWO), x)


@device
def one_plus_tanh32(x):
    """1 + tanh(x) = 2 / (1 + e^-2x), with e^-2x = 2^k e^2r, e^2r = 1 + r (2 + r p), |r| <= log(2) / 4."""
    a = -minimum32(x, _NEAR)
    t = fma(a, _TWO_LOG2_E, _ROUND)
    k = minus(t, _ROUND)
    r = fma(-k, _HALF_LN2_REST, fma(-k, _HALF_LN2, a))
    p = fma(fma(fma(fma(_D4, r, _D3), r, _D2), r, _D1), r, _D0)
    y = _times_power_of_two(fma(fma(p, r, TWO), r, ONE), t)
    y = y if x >= _HALF_LOWEST else INF - x
    return TWO / (ONE + y)
