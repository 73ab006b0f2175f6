"""sigmoid, tanh and silu."""

from ....backends.jit import device, prange
from ...functional.activations import sigmoid, silu, tanh
from .approximations import ONE, sigmoid32, tanh32
from .elementwise import kernel, unary


@kernel
def _sigmoid(x, y):
    for i in prange(x.size):
        y[i] = sigmoid32(x[i])


@kernel
def _sigmoid_backward(y, dy, dx):
    for i in prange(y.size):
        dx[i] = dy[i] * (y[i] * (ONE - y[i]))


@sigmoid.fused("cpu")
def _(x):
    return unary(x, _sigmoid, _sigmoid_backward, save_result=True)


@kernel
def _tanh(x, y):
    for i in prange(x.size):
        y[i] = tanh32(x[i])


@kernel
def _tanh_backward(y, dy, dx):
    for i in prange(y.size):
        dx[i] = dy[i] * (ONE - y[i] * y[i])


@tanh.fused("cpu")
def _(x):
    return unary(x, _tanh, _tanh_backward, save_result=True)


@device
def silu_derivative(x, s):
    """The derivative of x s with s = sigmoid(x)."""
    return s + x * s * (ONE - s)


@kernel
def _silu(x, y):
    for i in prange(x.size):
        y[i] = x[i] * sigmoid32(x[i])


@kernel
def _silu_backward(x, dy, dx):
    for i in prange(x.size):
        dx[i] = dy[i] * silu_derivative(x[i], sigmoid32(x[i]))


@silu.fused("cpu")
def _(x, inplace):
    return unary(x, _silu, _silu_backward)
