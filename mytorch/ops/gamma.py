"""The logarithm of the gamma function and its derivatives."""

from __future__ import annotations

import math

import numpy as np

from ..core.op import op

__all__ = ["digamma", "lgamma"]

# Arguments are shifted up by SHIFT, where the asymptotic series in 1 / x have the digits of float64, and
# negative ones are reflected first. Source: Abramowitz & Stegun, "Handbook of Mathematical Functions", 1964,
# 6.1.15, 6.1.17, 6.1.40 (lgamma), 6.3.6, 6.3.7, 6.3.18 (digamma), 6.4.6, 6.4.7, 6.4.11 (the others).
# https://dlmf.nist.gov/5
SHIFT = 10
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


@op(promote="float")
def lgamma(x):
    """log|Γ(x)|; inf at 0 and at the negative integers."""
    z = x.astype(np.float64)
    up = np.where(z < 0.5, 1 - z, z)
    y = _lgamma(up)
    reflected = math.log(math.pi) - np.log(np.abs(_sin_pi(z))) - y
    y = np.where(z < 0.5, reflected, y)
    y = np.where(np.isinf(z) | ((z <= 0) & (z == np.floor(z))), np.inf, y)
    return y.astype(x.dtype), lambda g: g * digamma.dual(x)


@op(promote="float")
def digamma(x):
    """The derivative of log Γ(x); -inf at 0, NaN at the negative integers."""
    z = x.astype(np.float64)
    up = np.where(z < 0.5, 1 - z, z)
    y = _digamma(up)
    y = np.where(z < 0.5, y - math.pi * _cos_pi(z) / _sin_pi(z), y)
    y = np.where(z == 0, np.copysign(np.inf, -z), y)
    y = np.where((z < 0) & (z == np.floor(z)), np.nan, y)
    return y.astype(x.dtype), lambda g: g * polygamma.dual(x, 1)


@op(promote="float")
def polygamma(x, n):
    """The derivative n of digamma, n > 0; for n > 1 NaN below -20."""
    z = x.astype(np.float64)
    if n == 1:
        up = np.where(z < 0.5, 1 - z, z)
        y = _polygamma(1, up)
        y = np.where(z < 0.5, np.square(math.pi / _sin_pi(z)) - y, y)
    else:
        y = _polygamma(n, z)
    return y.astype(x.dtype), lambda g: g * polygamma.dual(x, n + 1)


def _sin_pi(x):
    return np.sin(math.pi * np.remainder(x, 2))  # 0 at integers only to the digits of pi


def _cos_pi(x):
    return np.cos(math.pi * np.remainder(x, 2))


def _lgamma(x):
    """For x >= 0.5."""
    small = x < SHIFT
    product = np.ones_like(x)
    for k in range(SHIFT):
        product = product * np.where(small, x + k, 1)
    z = np.where(small, x + SHIFT, x)
    series = sum(b / (2 * k * (2 * k - 1)) * z ** (1 - 2 * k) for k, b in enumerate(BERNOULLI, 1))
    return (z - 0.5) * np.log(z) - z + 0.5 * math.log(2 * math.pi) + series - np.log(product)


def _digamma(x):
    """For x >= 0.5."""
    z = x + SHIFT
    series = sum(b / (2 * k) * z ** (-2 * k) for k, b in enumerate(BERNOULLI, 1))
    return np.log(z) - 0.5 / z - series - sum(1 / (x + k) for k in range(SHIFT))


def _polygamma(n, x):
    """(-1)^(n+1) n! times the sum of (x + k)^(-n-1), by the Euler-Maclaurin formula after 30 terms."""
    s, count = n + 1, 30
    total = sum((x + k) ** -s for k in range(count))
    z = np.where(x > -20, x + count, np.nan)
    total = total + z ** (1 - s) / (s - 1) + 0.5 * z**-s
    rising = s  # s (s + 1) … (s + 2 k - 2) / (2 k)!
    for k, b in enumerate(BERNOULLI, 1):
        total = total + b * rising / math.factorial(2 * k) * z ** (1 - s - 2 * k)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return (-1) ** s * math.factorial(n) * total
