"""relu, leaky_relu and squared_relu. NaN propagates: the comparisons are False for it."""

import triton
import triton.language as tl

from ...functional.rectifiers import leaky_relu, relu, squared_relu
from .elementwise import elements, load32, store, unary


@triton.jit
def _relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(y_ptr, at, tl.where(x <= 0, 0.0, x), inside)


@triton.jit
def _relu_backward(y_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    # Shapes: y, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    dy = load32(dy_ptr, at, inside)
    store(dx_ptr, at, tl.where(load32(y_ptr, at, inside) <= 0, 0.0, dy), inside)


@relu.fused("cuda")
def _(x, inplace):
    return unary(x, _relu, _relu_backward, save_result=True)


@triton.jit
def _leaky_relu(x_ptr, slope, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(y_ptr, at, tl.where(x > 0, x, slope * x), inside)


@triton.jit
def _leaky_relu_backward(x_ptr, dy_ptr, slope, dx_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    dy = load32(dy_ptr, at, inside)
    store(dx_ptr, at, tl.where(load32(x_ptr, at, inside) > 0, dy, slope * dy), inside)


@leaky_relu.fused("cuda")
def _(x, slope, inplace):
    return unary(x, _leaky_relu, _leaky_relu_backward, float(slope))


@triton.jit
def _squared_relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(y_ptr, at, tl.where(x <= 0, 0.0, x * x), inside)


@triton.jit
def _squared_relu_backward(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, dy, dx (n,)
    at, inside = elements(n, BLOCK)
    x = load32(x_ptr, at, inside)
    store(dx_ptr, at, tl.where(x <= 0, 0.0, 2 * x * load32(dy_ptr, at, inside)), inside)


@squared_relu.fused("cuda")
def _(x, inplace):
    return unary(x, _squared_relu, _squared_relu_backward)
