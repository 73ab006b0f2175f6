"""Special functions that NumPy doesn't have: the error function and its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..backends.device import RawArray, is_on_host
from ..backends.memory_order import flat, memory_order, unflat
from ..core.op import op

__all__ = ["erf", "erfc", "erfinv"]

BLOCK = 1 << 14  # elements to work on at a time on the CPU: all the passes over a block find it in the cache

# Numerators and denominators, highest power first: of erf(x) / x in x^2, for |x| <= 0.46875; of erfcx(x), x
# up to 4; of x^2 (1 / sqrt(pi) - x erfcx(x)) in 1 / x^2, above. Here erfcx(x) = exp(x^2) erfc(x).
# Source: W. J. Cody, "Rational Chebyshev Approximations for the Error Function", 1969,
# https://doi.org/10.1090/S0025-5718-1969-0247736-4
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)
_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346047e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)
# erf(x) = tanh(x p(x^2)) in single precision: p, lowest power first, is the minimax fit to atanh(erf(x)) / x
# for |x| <= 4, weighted with its effect on the result, by iteratively reweighted least squares (C. L. Lawson,
# 1961). The relative error of the result is below 2.3e-7; beyond 4 it is 1.
_SINGLE = (
    1.128379247, 1.027698641e-1, -1.952880924e-4, -6.148382944e-4, 8.459659956e-5, -4.794607051e-6,
    2.757613037e-8, 5.421605749e-9,
)


@op(promote="float")
def erf(x):
    """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    >>> mytorch.tensor([0.0, 1.0]).erf()
    tensor([0.00000 0.84270])
    """
    return by_blocks.dual(x, _erf), lambda g: g * (2 / math.sqrt(math.pi) * np.exp(-x * x))


@op(promote="float")
def erfc(x):
    """1 - erf(x), without losing the digits where erf(x) is almost 1.

    >>> mytorch.tensor([0.0, 1.0]).erfc()
    tensor([1.00000 0.15730])
    """
    return by_blocks.dual(x, _erfc), lambda g: g * (-2 / math.sqrt(math.pi) * np.exp(-x * x))


@op(promote="float")
def erfinv(x):
    """The y with erf(y) = x.

    A closed form that is good to three digits (S. Winitzki, "A handy approximation for the error function and
    its inverse", 2008), then Halley's iteration with the error function itself.

    >>> mytorch.tensor([0.0, 0.5]).erfinv()
    tensor([0.00000 0.47694])
    """
    return by_blocks.dual(x, _erfinv), lambda g: _erfinv_vjp(g, x)


def _erfinv_vjp(g, x):
    y = erfinv.dual(x)  # again, and not what the forward pass has: on a Tensor it brings its history
    return g * (math.sqrt(math.pi) / 2 * np.exp(y * y))


@op
def by_blocks(x, function):
    """`function(x)`, element by element, a cacheful at a time."""
    return _by_blocks(x, function), None


def _by_blocks(x: RawArray, function: Callable) -> RawArray:
    if not is_on_host(x) or x.size <= BLOCK:
        return function(x)
    order = memory_order(x)
    row, out = flat(x, order), np.empty(x.size, x.dtype)
    for i in range(0, x.size, BLOCK):
        out[i : i + BLOCK] = function(row[i : i + BLOCK])
    return unflat(out, x.shape, order)


def _erf(x):
    if x.dtype == np.float32:
        return _erf_single(x)
    size = np.abs(x)
    near = x * _ratio(_NEAR, x * x)
    return np.where(size < 0.46875, near, np.copysign(1 - _tail(size), x))


def _erf_single(x):
    square = np.minimum(x * x, 16)
    p = square * _SINGLE[-1]
    for c in _SINGLE[-2:0:-1]:
        p += c
        p *= square
    p += _SINGLE[0]
    p *= x
    return np.tanh(p)


def _erfc(x):
    size = np.abs(x)
    tail = _tail(size)
    far = np.where(x < 0, 2 - tail, tail)
    return np.where(size < 0.46875, 1 - x * _ratio(_NEAR, x * x), far)


def _tail(x):
    """erfc(x) for x >= 0.46875."""
    x = np.minimum(x, 28)  # here it is 0 in double precision; beyond, x * x would soon be infinite
    inverse = 1 / (x * x)
    far = (1 / math.sqrt(math.pi) - inverse * _ratio(_FAR, inverse)) / x
    coarse = np.trunc(x * 16) / 16  # its square is exact, and exp(-x * x) keeps its digits
    power = np.exp(-coarse * coarse) * np.exp((coarse - x) * (coarse + x))
    return power * np.where(x <= 4, _ratio(_MIDDLE, x), far)


def _erfinv(x):
    inside = np.clip(x, -1, 1)
    log = np.log1p(-inside * inside) / 2
    a = 2 / (math.pi * 0.147) + log
    y = np.copysign(np.sqrt(np.sqrt(a * a - log * 2 / 0.147) - a), inside)
    y = np.where(np.abs(x) < 1, y, 0)
    for _ in range(2):
        # f(y) = erf(y) - x, by the tail where erf is almost 1; f'' = -2 y f'
        f = np.where(np.abs(y) < 0.5, _erf(y) - x, np.sign(y) * ((1 - np.abs(x)) - _erfc(np.abs(y))))
        step = f * (math.sqrt(math.pi) / 2) * np.exp(y * y)
        y = y - step / (1 + y * step)
    beyond = np.where(np.abs(x) == 1, np.copysign(np.inf, x), np.nan)
    return np.where(np.abs(x) < 1, y, beyond).astype(x.dtype)


def _ratio(coefficients: tuple[Sequence[float], Sequence[float]], x: RawArray) -> RawArray:
    """Numerator / denominator, by Horner's rule, in place."""
    numerator, denominator = (x * c[0] for c in coefficients)
    for n, d in zip(coefficients[0][1:-1], coefficients[1][1:-1], strict=True):
        numerator += n
        numerator *= x
        denominator += d
        denominator *= x
    numerator += coefficients[0][-1]
    denominator += coefficients[1][-1]
    numerator /= denominator
    return numerator
