"""The derivative of a gamma distribution's sample by its parameter: implicit reparameterization.

A sample x is the solution of P(a, x) = u for a uniform u, where P is the distribution function, so

    dx/da = -(dP/da) / p(x),   p(x) = x^(a-1) exp(-x) / Γ(a)

Source: Figurnov, Mohamed & Mnih, "Implicit Reparameterization Gradients", 2018,
https://arxiv.org/abs/1805.08498. The series and the integrals are those of P (DLMF 8.7.1, 8.6.2),
differentiated by a. https://dlmf.nist.gov/8
"""

from __future__ import annotations

import numpy as np

from ..core.op import op
from .gamma import _digamma

SMALL = 2.0  # below it the series has its digits after TERMS terms
TERMS = 30
NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)
DROP = 40  # the integrals end where the integrand is about exp(-40)


@op
def standard_gamma(concentration, sample):
    """Returns the sample, of a gamma distribution of rate 1, as a function of the concentration a > 0.

    Args:
        concentration, sample: of the same shape and dtype.
    """
    return sample.copy(), lambda g: g * standard_gamma_grad.dual(concentration, sample)


@op(promote="float")
def standard_gamma_grad(concentration, sample):
    """Returns dx/da; it has no derivative of its own, as in PyTorch."""
    a, x = (z.astype(np.float64) for z in (concentration, sample))
    x = np.maximum(x, np.finfo(np.float64).tiny)
    y = np.where(x < SMALL, _by_series(a, np.minimum(x, SMALL)), _by_integral(a, np.maximum(x, SMALL)))
    return y.astype(concentration.dtype), None


def _digamma_of(a):
    """The digamma function, for all a > 0."""
    return _digamma(a + 1) - 1 / a


def _by_series(a, x):
    """-x times the sum of t_n (log x - digamma(a + n + 1)), t_n = x^n / (a (a + 1) … (a + n))."""
    log, psi, term, total = np.log(x), _digamma_of(a), 1 / a, 0
    for n in range(TERMS):
        psi = psi + 1 / (a + n)
        total = total + term * (log - psi)
        term = term * (x / (a + n + 1))
    return -x * total


def _by_integral(a, x):
    """x times the integral over v > 0 of exp(s a v - x (exp(s v) - 1)) (v + s (log x - digamma(a))).

    s is 1 for the integral of p above x, and -1 for that below it (t = x exp(s v)): where all of the
    integrand is positive, so that nothing cancels.
    """
    lead = np.log(x) - _digamma_of(a)
    s = np.where(lead > 0, 1.0, -1.0)
    gap, far = np.abs(x - a), np.where(lead > 0, x, a)
    slope = np.where(lead > 0, x - a, 2 * gap - DROP)
    # The exponent is at most -(x - a) v - x v²/2 above x, and -(a - x) v - x v²/(2 + v) below it.
    above = (np.sqrt(slope * slope + 2 * DROP * far) - slope) / far
    below = (np.sqrt(slope * slope + 8 * DROP * far) - slope) / (2 * far)
    end, total = np.where(lead > 0, above, below), 0
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        v = (0.5 + 0.5 * float(node)) * end
        exponent = s * a * v - x * np.expm1(s * v)
        total = total + float(weight) * np.exp(exponent) * (v + np.abs(lead))
    return 0.5 * x * end * total
