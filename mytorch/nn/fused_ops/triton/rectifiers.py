"""relu, leaky_relu and squared_relu: what decides is a comparison that is False for NaN, which passes."""

import triton
import triton.language as tl

from ...functional.rectifiers import leaky_relu, relu, squared_relu
from .elementwise import elements, single, store, unary


@triton.jit
def _relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    x = single(x_ptr, at, inside)
    store(y_ptr, at, tl.where(x <= 0, 0.0, x), inside)


@triton.jit
def _relu_backward(y_ptr, g_ptr, d_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    g = single(g_ptr, at, inside)
    store(d_ptr, at, tl.where(single(y_ptr, at, inside) <= 0, 0.0, g), inside)


@relu.fused("cuda")
def _(x, inplace):
    return unary(x, _relu, _relu_backward, keep_result=True)


@triton.jit
def _leaky_relu(x_ptr, slope, y_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    x = single(x_ptr, at, inside)
    store(y_ptr, at, tl.where(x > 0, x, slope * x), inside)


@triton.jit
def _leaky_relu_backward(x_ptr, g_ptr, slope, d_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    g = single(g_ptr, at, inside)
    store(d_ptr, at, tl.where(single(x_ptr, at, inside) > 0, g, slope * g), inside)


@leaky_relu.fused("cuda")
def _(x, slope, inplace):
    return unary(x, _leaky_relu, _leaky_relu_backward, float(slope))


@triton.jit
def _squared_relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    x = single(x_ptr, at, inside)
    store(y_ptr, at, tl.where(x <= 0, 0.0, x * x), inside)


@triton.jit
def _squared_relu_backward(x_ptr, g_ptr, d_ptr, n, BLOCK: tl.constexpr):
    at, inside = elements(n, BLOCK)
    x = single(x_ptr, at, inside)
    store(d_ptr, at, tl.where(x <= 0, 0.0, 2 * x * single(g_ptr, at, inside)), inside)


@squared_relu.fused("cuda")
def _(x, inplace):
    return unary(x, _squared_relu, _squared_relu_backward)
