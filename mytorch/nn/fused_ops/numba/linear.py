"""Linear layers on the CPU: each thread computes a part of the product, adds the bias and activates it."""

from __future__ import annotations

import numpy as np

from ....backends import gemm
from ....backends.blas import column_sums, rows
from ....backends.gemm import get_blas_threads, multiply_part, multiply_rows, set_blas_threads
from ....backends.jit import kernel, prange, routine
from ...functional.linear import linear, linear_activation
from ..linear import require_shapes, vjps
from .activations import silu_derivative
from .approximations import ONE, ZERO, sigmoid32
from .gelu import cdf, cdf_tanh, multiply, slope, slope_tanh
from .memory import require_openblas
from .moments import SINGLE, require_single
from .rectifiers import relu_backward

GELU, GELU_TANH, RELU, SILU = range(4)
ACTIVATIONS = {"gelu": GELU, "gelu_tanh": GELU_TANH, "relu": RELU, "silu": SILU}


@routine
def activate(activation, z, slopes):
    """z = f(z) in place and slopes = f'(z), for a row."""
    if activation == GELU:
        for j in range(z.size):
            p = cdf(z[j])
            slopes[j] = slope(z[j], p)
            z[j] *= p
    elif activation == GELU_TANH:
        for j in range(z.size):
            p = cdf_tanh(z[j])
            slopes[j] = slope_tanh(z[j], p)
            z[j] *= p
    elif activation == RELU:
        for j in range(z.size):
            slopes[j] = ZERO if z[j] <= ZERO else ONE
            z[j] = ZERO if z[j] <= ZERO else z[j]
    else:
        for j in range(z.size):
            s = sigmoid32(z[j])
            slopes[j] = silu_derivative(z[j], s)
            z[j] *= s


@routine
def finish(z, bias, activation, slopes):
    """z = f(z + bias) in place and slopes = f'(z + bias), for a row; no f if activation is negative."""
    if bias.size:
        for j in range(z.size):
            z[j] += bias[j]
    if activation >= 0:
        activate(activation, z, slopes)


@kernel
def _linear_kernel(ta, tb, m, n, k, a, lda, b, ldb, y, bias, activation, slopes, by_rows, step):
    """y = f(a b + bias) and slopes = f'(a b + bias); no f if activation is negative."""
    before = get_blas_threads()
    set_blas_threads(np.int32(1))
    size = m if by_rows else n
    for part in prange((size + step - 1) // step):
        first, last = part * step, min(size, part * step + step)
        multiply_part(ta, tb, m, n, k, a, lda, b, ldb, y.ctypes.data, n, ZERO, by_rows, first, last)
        left, right = (0, n) if by_rows else (first, last)
        for i in range(first if by_rows else 0, last if by_rows else m):
            finish(y[i, left:right], bias[left:right], activation, slopes[i, left:right])
    set_blas_threads(before)


@kernel
def _row_kernel(w, x, y, bias, activation, slopes):
    """The same for one row x and a matrix w (n, k), y = f(w x + bias)."""
    for block in prange((w.shape[0] + 31) // 32):
        first, last = 32 * block, min(w.shape[0], 32 * block + 32)
        multiply_rows(w, x, y, first, last)
        finish(y[first:last], bias[first:last], activation, slopes[first:last])


@kernel
def _finish_kernel(y, bias, activation, slopes):
    """y = f(y + bias) and slopes = f'(y + bias), for a product that is there."""
    for i in prange(y.shape[0]):
        finish(y[i], bias, activation, slopes[i])


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns f(z) and f'(z) of z = x W^T + b for x (m, k) and W (n, k); without f, z and an empty array."""
    m, n = x.shape[0], weight.shape[0]
    y = np.empty((m, n), SINGLE, like=x)
    slopes = np.empty((m, n if activation else 0), SINGLE, like=x)
    if (bias is None and activation is None) or not y.size:
        gemm.matrix_product(x, weight.T, y)
        return y, slopes
    bias = np.empty(0, SINGLE) if bias is None else np.ascontiguousarray(bias, like=x)
    number = ACTIVATIONS.get(activation, -1)
    if m == 1 and weight.flags.c_contiguous:
        _row_kernel(weight, np.ascontiguousarray(x[0], like=x), y[0], bias, number, slopes[0])
        return y, slopes
    if not gemm.is_available():
        np.matmul(x, weight.T, out=y)
        _finish_kernel(y, bias, number, slopes)
        return y, slopes
    x, ta, lda = gemm.operand(x)
    w, tb, ldb = gemm.operand(weight.T)
    operands = gemm.address_of(x), lda, gemm.address_of(w), ldb
    _linear_kernel(ta, tb, m, n, x.shape[1], *operands, y, bias, number, slopes, *gemm.shares(m, n))
    return y, slopes


@linear.fused("cpu")
def _linear(x, weight, bias):
    require_single(x)
    require_shapes(weight, bias)
    require_openblas()
    x_shape = x.shape
    x = rows(x)
    y, _ = forward(x, weight, bias)

    def backward(dy):
        return dy, lambda: column_sums(dy)

    return y.reshape(*x_shape[:-1], weight.shape[0]), vjps(x, weight, bias, x_shape, backward)


@linear_activation.fused("cpu")
def _linear_activation(x, weight, bias, activation):
    require_single(x)
    require_shapes(weight, bias)
    x_shape = x.shape
    x = rows(x)
    y, slopes = forward(x, weight, bias, activation)

    def backward(dy):
        dz = np.empty_like(slopes)
        kernel = relu_backward if activation == "relu" else multiply
        kernel(slopes.reshape(-1), np.ascontiguousarray(dy, like=dy).reshape(-1), dz.reshape(-1))
        return dz, lambda: column_sums(dz)

    return y.reshape(*x_shape[:-1], weight.shape[0]), vjps(x, weight, bias, x_shape, backward)
