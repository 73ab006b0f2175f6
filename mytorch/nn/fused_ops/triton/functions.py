"""Functions of numbers that Triton's language has not, or not for NaN."""

import triton
import triton.language as tl


@triton.jit
def larger(x, y):
    """The larger number; NaN if one is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(x, y):
    """The smaller number; NaN if one is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def copysign32(x, y):
    """|x| with the sign of y."""
    sign = y.to(tl.int32, bitcast=True) & -0x80000000
    return (tl.abs(x).to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
def log1p32(x):
    """log(1 + x), with the digits of a small x that the sum loses.

    Source: W. Kahan, in Goldberg, "What Every Computer Scientist Should Know About Floating-Point
        Arithmetic", 1991, theorem 4, https://doi.org/10.1145/103162.103163
    """
    u = 1.0 + x
    y = tl.log(u) * (x / (u - 1.0))
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), u, y))


@triton.jit
def expm132(x):
    """exp(x) - 1, with the digits of a small x that the difference loses: the inverse of `log1p32`."""
    u = tl.exp(x)
    y = (u - 1.0) * (x / tl.log(u))
    y = tl.where(u == 1.0, x, y)
    return tl.where((x < -20.0) | (x > 20.0), u - 1.0, y)
