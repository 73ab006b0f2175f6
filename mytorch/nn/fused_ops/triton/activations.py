"""sigmoid, tanh and silu."""

import triton
import triton.language as tl

from ...functional.activations import sigmoid, silu, tanh
from .elementwise import elements, load32, store, unary


@triton.jit
def sigmoid32(x):
    """1 / (1 + exp(-x))"""
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh32(x):
    """(1 - exp(-2|x|)) / (1 + exp(-2|x|)), with the sign of x; near 0 a series, where that would cancel."""
    a = tl.abs(x)
    power = tl.exp(-2 * a)
    s = x * x
    series = a * (1 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835)))))
    y = tl.where(a < 0.25, series, (1 - power) / (1 + power))
    return tl.where(x < 0, -y, y)


@triton.jit
def silu_derivative(x, s):
    """The derivative of x s with s = sigmoid(x)."""
    return s + x * s * (1 - s)


@triton.jit
def _sigmoid(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    store(y_ptr, at, sigmoid32(load32(x_ptr, at, inside)), inside)


@triton.jit
def _sigmoid_backward(y_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    # Shapes: y, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    y = load32(y_ptr, at, inside)
    store(dx_ptr, at, load32(dy_ptr, at, inside) * (y * (1 - y)), inside)


@sigmoid.fused("cuda")
def _(x):
    return unary(x, _sigmoid, _sigmoid_backward, save_result=True)


@triton.jit
def _tanh(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    store(y_ptr, at, tanh32(load32(x_ptr, at, inside)), inside)


@triton.jit
def _tanh_backward(y_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    # Shapes: y, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    y = load32(y_ptr, at, inside)
    store(dx_ptr, at, load32(dy_ptr, at, inside) * (1 - y * y), inside)


@tanh.fused("cuda")
def _(x):
    return unary(x, _tanh, _tanh_backward, save_result=True)


@triton.jit
def _silu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(y_ptr, at, x * sigmoid32(x), inside)


@triton.jit
def _silu_backward(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(dx_ptr, at, load32(dy_ptr, at, inside) * silu_derivative(x, sigmoid32(x)), inside)


@silu.fused("cuda")
def _(x, inplace):
    return unary(x, _silu, _silu_backward)
