"""gelu. Backward recomputes from the input, since on the GPU the kernel is bound by memory bandwidth."""

import math

import triton
import triton.language as tl

from ...functional.gelu import TANH_FORM, gelu
from .activations import sigmoid32
from .elementwise import elements, load32, store, unary

_SQRT_HALF: tl.constexpr = tl.constexpr(math.sqrt(0.5))
_DENSITY_AT_0: tl.constexpr = tl.constexpr(1 / math.sqrt(2 * math.pi))
_T0: tl.constexpr = tl.constexpr(2 * TANH_FORM[0])
_T1: tl.constexpr = tl.constexpr(2 * TANH_FORM[1])


@triton.jit
def cdf(x, EXACT: tl.constexpr):
    """P(X <= x), or nearly: (1 + tanh(u)) / 2 = sigmoid(2 u)."""
    if EXACT:
        return 0.5 * (1 + tl.erf(x * _SQRT_HALF))
    else:
        return sigmoid32(x * (_T0 + _T1 * (x * x)))


@triton.jit
def slope(x, p, EXACT: tl.constexpr):
    """The derivative of x p with p = cdf(x)."""
    if EXACT:
        return p + x * (_DENSITY_AT_0 * tl.exp(-0.5 * (x * x)))
    else:
        return p + x * (p * (1 - p)) * (_T0 + 3 * _T1 * (x * x))


@triton.jit
def _gelu(x_ptr, y_ptr, n, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(y_ptr, at, x * cdf(x, EXACT), inside)


@triton.jit
def _gelu_backward(x_ptr, dy_ptr, dx_ptr, n, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    # Shapes: x, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(dx_ptr, at, load32(dy_ptr, at, inside) * slope(x, cdf(x, EXACT), EXACT), inside)


@gelu.fused("cuda")
def _(x, approximate):
    return unary(x, _gelu, _gelu_backward, EXACT=approximate == "none")
