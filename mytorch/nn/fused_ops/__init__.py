"""The fused kernels of composites: Numba's for the CPU, Triton's for the GPU (see `registry`)."""

from .registry import register, why_not

__all__ = ["why_not"]

register()
