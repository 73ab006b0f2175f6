"""GELU, exact and in its tanh form."""

from __future__ import annotations

import math

import numpy as np

from ...autograd import is_grad_enabled
from ...backends.device import is_on_host
from ...backends.memory_order import flat, memory_order, unflat
from ...core.tensor import Tensor
from ...ops.special import erfc
from .composite import composite, require_float

BLOCK = 1 << 16  # elements per block on the CPU, small enough that all passes over it hit the cache

# P(X <= x) = (1 + tanh(x p(x^2))) / 2. For the tanh form p has two coefficients; with these seven the error
# is below 3e-8 for every x, less than float32 resolves. They are the minimax fit to atanh(erf(x / sqrt(2)))
# / x, weighted with its effect on the result, by iteratively reweighted least squares (C. L. Lawson, 1961).
TANH_FORM = (math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715)
EXACT_FORM = (
    7.97884941e-1, 3.63330846e-2, -3.25949759e-5, -5.53061935e-5,
    3.96474436e-6, -1.32263333e-7, 1.75617052e-9,
)


@composite
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Returns x P(X <= x), where X is normally distributed with mean 0 and variance 1.

        x / 2 (1 + erf(x / sqrt(2)))                            approximate="none"
        x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))       approximate="tanh"

    Raises:
        RuntimeError: `approximate` has another value.
    Source: Hendrycks & Gimpel, "Gaussian Error Linear Units", 2016, https://arxiv.org/abs/1606.08415

    >>> F.gelu(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.15866  1.95450])
    """
    if approximate == "tanh":
        return 0.5 * input * (1 + (math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)).tanh())
    return 0.5 * input * (1 + (input / math.sqrt(2)).erf())


@gelu.check
def _check(input, approximate):
    require_float(input.dtype, "gelu")
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"gelu(): approximate argument must be either none or tanh, got {approximate!r}")


@gelu.manual
def gelu_manual(x, approximate):
    """Computes the derivative, P(x) + x P'(x), with the result: they share most of the work."""
    exact = approximate == "none"
    if exact and x.dtype == np.float64:
        return _gelu_double(x)
    shape, order = x.shape, memory_order(x)
    x = flat(x, order)
    y = np.empty_like(x)
    slope = np.empty_like(x) if is_grad_enabled() else None
    step = BLOCK if is_on_host(x) else max(x.size, 1)
    square, p = np.empty((2, min(step, x.size)), x.dtype, like=x)
    for i in range(0, x.size, step):
        block = slice(i, i + step)
        xs = x[block]
        part = square[: xs.size], p[: xs.size]
        _cdf(xs, *part, EXACT_FORM if exact else TANH_FORM)
        np.multiply(xs, part[1], out=y[block])
        if slope is not None:
            (_add_x_density if exact else _add_x_derivative)(xs, *part, slope[block])
    slope = None if slope is None else unflat(slope, shape, order)
    return unflat(y, shape, order), lambda g: g * slope


def _cdf(x, square, p, form):
    """Sets `square` to x^2 and `p` to (1 + tanh(x p(x^2))) / 2."""
    np.multiply(x, x, out=square)
    np.multiply(square, form[-1], out=p)
    for c in form[-2:0:-1]:
        p += c
        p *= square
    p += form[0]
    p *= x
    np.tanh(p, out=p)
    p *= 0.5
    p += 0.5


def _add_x_density(x, square, p, out):
    """Sets `out` to p + x exp(-x^2 / 2) / sqrt(2 pi)."""
    square *= -0.5
    np.exp(square, out=square)
    square *= 1 / math.sqrt(2 * math.pi)
    square *= x
    np.add(p, square, out=out)


def _add_x_derivative(x, square, p, out):
    """Sets `out` to p + x p', with p = (1 + tanh(c0 x + c1 x^3)) / 2, so p' = 2 p (1 - p) (c0 + 3 c1 x^2)."""
    np.subtract(1, p, out=out)
    out *= p
    square *= 6 * TANH_FORM[1]
    square += 2 * TANH_FORM[0]
    square *= x
    out *= square
    out += p


def _gelu_double(x):
    p = 0.5 * erfc.forward(x * -math.sqrt(0.5))[0]
    return x * p, lambda g: g * (p + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))
