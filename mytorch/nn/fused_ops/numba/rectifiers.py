"""relu, leaky_relu and squared_relu. NaN propagates: the comparisons are False for it."""

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
def relu_backward(y, dy, dx):
    """dx = dy, and 0 where y is 0, even if dy is NaN."""
    for i in prange(y.size):
        dx[i] = ZERO if y[i] <= ZERO else dy[i]


@relu.fused("cpu")
def _(x, inplace):
    return unary(x, _relu, relu_backward, save_result=True)


@kernel
def _leaky_relu(x, slope, y):
    for i in prange(x.size):
        y[i] = x[i] if x[i] > ZERO else slope * x[i]


@kernel
def _leaky_relu_backward(x, dy, slope, dx):
    for i in prange(x.size):
        dx[i] = dy[i] if x[i] > ZERO else slope * dy[i]


@leaky_relu.fused("cpu")
def _(x, slope, inplace):
    return unary(x, _leaky_relu, _leaky_relu_backward, np.float32(slope))


@kernel
def _squared_relu(x, y):
    for i in prange(x.size):
        y[i] = ZERO if x[i] <= ZERO else x[i] * x[i]


@kernel
def _squared_relu_backward(x, dy, dx):
    for i in prange(x.size):
        dx[i] = ZERO if x[i] <= ZERO else TWO * x[i] * dy[i]


@squared_relu.fused("cpu")
def _(x, inplace):
    return unary(x, _squared_relu, _squared_relu_backward)
