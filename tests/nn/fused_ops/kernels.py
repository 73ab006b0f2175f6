"""Kernels that call the CPU kernels' helpers, for their tests."""

from numba import prange

from mytorch.backends.jit import kernel
from mytorch.nn.fused_ops.numba.philox import uniform32


@kernel
def uniform_of(numbers, k0, k1, out):
    for i in prange(numbers.size):
        out[i] = uniform32(k0, k1, numbers[i])
