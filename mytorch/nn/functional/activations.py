"""Activations: functions of one element."""

from __future__ import annotations

import math

import numpy as np

from ...autograd import is_grad_enabled
from ...ops import elementwise, where
from ...ops.special import erfc
from ...tensor import Tensor
from .composite import composite

BLOCK = (
    1 << 16
)  # elements to work on at a time on the CPU: all the passes over one block find it in the cache


def require_float(x: Tensor, name: str) -> None:
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f"{name}(): not implemented for dtype {x.dtype}, only for floating-point tensors"
        )


@composite
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0); where x is 0 the gradient is 0.

    Source: Nair & Hinton, "Rectified Linear Units Improve Restricted Boltzmann Machines", ICML 2010.
    """
    return where(input <= 0, 0, input)


@relu.manual(half=True)
def _relu(x, inplace):
    return elementwise.relu.forward(x)


@composite
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which can't overflow"""
    return 0.5 * (0.5 * input).tanh() + 0.5


sigmoid.manual(elementwise.sigmoid.forward)


@composite
def tanh(input: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x))"""
    return input.tanh()


@composite
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x), also called swish.

    Source: Elfwing, Uchibe & Doya, 2017, https://arxiv.org/abs/1702.03118
    """
    return input * sigmoid(input, auto=True)


@silu.check
def _check_silu(input, inplace):
    require_float(input, "silu")


@silu.manual
def _silu(x, inplace):
    s, _ = elementwise.sigmoid.forward(x)
    y = x * s
    return y, lambda g: g * (s + y * (1 - s))


@composite
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x P(X <= x), X normally distributed with mean 0 and variance 1.

        x / 2 (1 + erf(x / sqrt(2)))                            approximate="none"
        x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))       approximate="tanh"

    Raises:
        RuntimeError: `approximate` is something else.
    Source: Hendrycks & Gimpel, "Gaussian Error Linear Units", 2016, https://arxiv.org/abs/1606.08415
    """
    if approximate == "tanh":
        return 0.5 * input * (1 + (math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)).tanh())
    return 0.5 * input * (1 + (input / math.sqrt(2)).erf())


@gelu.check
def _check_gelu(input, approximate):
    require_float(input, "gelu")
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"gelu(): approximate argument must be either none or tanh, got {approximate!r}")


@gelu.manual
def _gelu(x, approximate):
    """A cacheful at a time; the slope is made on the way, while most of what it needs is at hand."""
    cdf = _cdf_tanh if approximate == "tanh" else _cdf_single if x.dtype == np.float32 else _cdf
    x = x if x.flags.c_contiguous else x.copy()
    y = np.empty_like(x)
    slope = np.empty_like(x) if is_grad_enabled() else None
    flat = [None if a is None else a.reshape(-1) for a in (x, y, slope)]
    step = BLOCK if isinstance(x, np.ndarray) else max(x.size, 1)
    scratch = np.empty_like(x, shape=(3, min(step, x.size)))
    for i in range(0, x.size, step):
        xs, ys, slopes = (None if a is None else a[i : i + step] for a in flat)
        p, x_density = cdf(xs, scratch[:, : xs.size], slope is not None)
        np.multiply(xs, p, out=ys)
        if slope is not None:
            np.add(p, x_density, out=slopes)
    return y, lambda g: g * slope


def _cdf_single(x, scratch, want_density):
    """P(X <= x) to 1e-7 and x times the density at x, computed in place in `scratch`.

    For x < 0 it is exp(-x^2 / 2) p(t) with t = 1 / (1 + 0.33 |x|), as C. Hastings has it (Abramowitz
    & Stegun, 1964, 26.2.17); the polynomial p is our own, fitted for the least absolute error, 6.6e-8.
    """
    density, t, p = scratch
    np.multiply(x, x, out=density)
    density *= np.float32(-0.5)
    np.exp(density, out=density)
    np.abs(x, out=t)
    t *= np.float32(_T_SCALE)
    t += np.float32(1)
    np.divide(np.float32(1), t, out=t)
    np.multiply(t, np.float32(_T_POLYNOMIAL[0]), out=p)
    for c in _T_POLYNOMIAL[1:]:
        p += np.float32(c)
        p *= t
    p *= density
    np.subtract(np.float32(0.5), p, out=p)
    np.copysign(p, x, out=p)
    p += np.float32(0.5)
    if want_density:
        density *= np.float32(1 / math.sqrt(2 * math.pi))
        density *= x
    return p, density


_T_SCALE = 0.33
_T_POLYNOMIAL = (-0.11067715, 0.37929659, -0.0962554, 0.2062391, 0.12139689)


def _cdf(x, scratch, want_density):
    """P(X <= x) = erfc(-x / sqrt(2)) / 2 and x times the density at x, in any precision."""
    p = 0.5 * erfc.forward(x * -math.sqrt(0.5))[0]
    return p, x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) if want_density else None


def _cdf_tanh(x, scratch, want_density):
    """(1 + tanh(u)) / 2 in place of P(X <= x), and x times its derivative (1 - tanh(u)^2) u' / 2."""
    square, p, x_density = scratch
    np.multiply(x, x, out=square)
    np.multiply(square, _CUBE, out=p)
    p += 1
    p *= x
    p *= _SCALE
    np.tanh(p, out=p)
    if want_density:
        np.multiply(p, p, out=x_density)
        np.subtract(1, x_density, out=x_density)
        square *= 1.5 * _SCALE * _CUBE
        square += 0.5 * _SCALE
        square *= x
        x_density *= square
    p += 1
    p *= 0.5
    return p, x_density


_SCALE, _CUBE = math.sqrt(2 / math.pi), 0.044715
