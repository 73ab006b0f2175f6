"""The norm of a long vector, and its scaling, in one pass each, for raw arrays."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from ...backends.device import RawArray, is_on_host
from ...backends.dtypes import is_bfloat16, is_half
from ..functional.variant import uses_kernels
from . import registry

SHORTEST = 1 << 16  # elements from which a compiled loop is faster than NumPy on the CPU


def euclidean_norm(x: RawArray) -> RawArray:
    """Returns sqrt(sum x^2) in x's dtype, or float32 for half precision, without waiting for a GPU."""
    kernels = _kernels(x)
    if kernels is not None:
        return np.sqrt(kernels.sum_of_squares(x))
    if is_half(x.dtype):
        x = x.astype(np.float32)
    return np.sqrt(np.vdot(x, x).real)  # also of complex numbers


def scale(x: RawArray, factor: float | RawArray) -> None:
    """x *= factor, for a raw array.

    Args:
        factor: a float, or one float32 in an array on the same device.
    """
    kernels = _kernels(x)
    if kernels is not None:
        kernels.scale(x.reshape(-1), factor)
    elif is_bfloat16(x.dtype):
        x *= np.float32(factor) if isinstance(factor, float) else factor
    else:
        x *= factor if isinstance(factor, float) else factor.astype(x.dtype)


def keeps_zeros(x: RawArray) -> bool:
    """Returns whether `scale` leaves zeros unchanged if the factor, which is on the GPU, is NaN."""
    return not is_on_host(x) and _kernels(x) is not None


def _kernels(x: RawArray) -> ModuleType | None:
    if not uses_kernels() or is_on_host(x) and x.size < SHORTEST or not x.flags.c_contiguous:
        return None
    return registry.find("norm", x)
