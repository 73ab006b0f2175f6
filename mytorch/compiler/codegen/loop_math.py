"""
exp, tanh and logarithms for float32 in loops, as polynomials, which vectorize: the C library's functions are
scalar calls. exp and tanh have fewer instructions than those of the kernels, `approximations`: the nearest
integer comes from an addition, and polynomials have a term less.

Errors are at most about 2.5 ulp; NaN, inf and overflow are those of the exact functions, and subnormal
results of exp may be 0.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...backends.jit import device
from ...nn.fused_ops.numba.approximations import HALF, INF, ONE, TWO, ZERO, fma
from ...nn.fused_ops.numba.in_order import minus, plus, times
from ...nn.fused_ops.numba.maximum import maximum32, minimum32

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
# log(1 + f) = f - f^2 / 2 + f^3 (l0 + l1 f + …) for sqrt(1/2) <= 1 + f <= sqrt(2): within 6e-9 of itself.
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7 = (
    np.float32(c)
    for c in (
        0.3333333169, -0.25000821632, 0.20001229196, -0.16623336355, 0.14201684953, -0.13160324734,
        0.12762200801, -0.076349102084,
    )
)
_HALF_ROOT = 0x3F3504F3  # the bits of sqrt(1/2)
_NORMAL, _SCALE, _SHIFT = np.float32(2.0**-126), np.float32(2.0**23), np.float32(23)
_NAN = np.float32(math.nan)


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


@device
def expm1_32(x):
    """e^x - 1 = 2^k (e^r - 1) + (2^k - 1); for x > 20, where 2^k may be inf, from e^x."""
    a = maximum32(x, -_FAR)
    t, r, p = _reduced(a)
    power = _times_power_of_two(ONE, t)
    y = fma(power, fma(times(p, r), r, r), minus(power, ONE))
    return minus(exp32(a), ONE) if a > _FAR else y


@intrinsic
def _exponent(typing_context, x):
    """e of x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for positive normal numbers."""

    def generate(context, builder, signature, args):
        above = builder.sub(builder.bitcast(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), _HALF_ROOT))
        return builder.sitofp(builder.ashr(above, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return types.float32(types.float32), generate


@intrinsic
def _mantissa(typing_context, x):
    """1 + f; see `_exponent`."""

    def generate(context, builder, signature, args):
        bits, first = builder.bitcast(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), _HALF_ROOT)
        rest = builder.and_(builder.sub(bits, first), ir.Constant(ir.IntType(32), 0x7FFFFF))
        return builder.bitcast(builder.add(rest, first), ir.FloatType())

    return types.float32(types.float32), generate


@device
def log32(x):
    """e log(2) + log(1 + f); see `_exponent`."""
    is_small = x < _NORMAL
    a = times(x, _SCALE) if is_small else x
    e = minus(_exponent(a), _SHIFT) if is_small else _exponent(a)
    f = minus(_mantissa(a), ONE)
    p = fma(fma(fma(fma(_L7, f, _L6), f, _L5), f, _L4), f, _L3)
    p = fma(fma(fma(p, f, _L2), f, _L1), f, _L0)
    s = times(f, f)
    y = fma(-HALF, s, fma(times(s, f), p, times(e, _LN2_REST)))
    y = fma(e, _LN2, plus(f, y))
    y = y if x < INF else x  # NaN, too
    y = _NAN if x < ZERO else y
    return -INF if x == ZERO else y


@device
def log1p32(x):
    """log(u) + (x - (u - 1)) / u for u = 1 + x: the second term is what was lost in the first."""
    u = plus(x, ONE)
    y = log32(u)
    return y + minus(x, minus(u, ONE)) / u if -ONE < x < INF else y
