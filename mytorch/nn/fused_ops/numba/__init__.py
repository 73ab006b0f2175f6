"""Kernels for the CPU: loops, compiled by Numba."""
