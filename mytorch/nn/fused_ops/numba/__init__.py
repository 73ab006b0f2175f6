"""Kernels for the CPU: loops, compiled by Numba."""

from ....backends import jit as _jit  # noqa: F401 - first, as it prepares the environment that Numba reads
