"""relu, leaky_relu and squared_relu: what decides is a comparison that is False for NaN, which passes."""

import numpy as np

from ....backends.jit import prange
from ...functional.rectifiers import leaky_relu, relu, squared_relu
from .approximations import TWO, ZERO
from .elementwise import kernel, unary


@kernel
def _relu(x, y):
    for i in prange(x.size):
        y[i] = ZERO if x[i] <= ZERO else x[i]


@kernel
def relu_backward(y, g, d):
    """d = g, and 0 where y is, even if g is NaN there."""
    for i in prange(y.size):
        d[i] = ZERO if y[i] <= ZERO else g[i]


@relu.fused("cpu")
def _(x, inplace):
    return unary(x, _relu, relu_backward, keep_result=True)


@kernel
def _leaky_relu(x, slope, y):
    for i in prange(x.size):
        y[i] = x[i] if x[i] > ZERO else slope * x[i]


@kernel
def _leaky_relu_backward(x, g, slope, d):
    for i in prange(x.size):
        d[i] = g[i] if x[i] > ZERO else slope * g[i]


@leaky_relu.fused("cpu")
def _(x, slope, inplace):
    return unary(x, _leaky_relu, _leaky_relu_backward, np.float32(slope))


@kernel
def _squared_relu(x, y):
    for i in prange(x.size):
        y[i] = ZERO if x[i] <= ZERO else x[i] * x[i]


@kernel
def _squared_relu_backward(x, g, d):
    for i in prange(x.size):
        d[i] = ZERO if x[i] <= ZERO else TWO * x[i] * g[i]


@squared_relu.fused("cpu")
def _(x, inplace):
    return unary(x, _squared_relu, _squared_relu_backward)
