"""The norm of a long vector, and its scaling, in one pass each. These work on raw arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.dtypes import is_bfloat16, is_half
from . import registry

SHORTEST = 1 << 16  # elements from which a compiled loop is worth its call on the CPU


def euclidean_norm(x: Any) -> Any:
    """sqrt(sum x^2) of a raw vector, of its dtype, or float32 for half precision; doesn't wait for a GPU."""
    kernels = _kernels(x)
    if kernels is not None:
        return np.sqrt(kernels.sum_of_squares(x))
    if is_half(x.dtype):
        x = x.astype(np.float32)
    return np.sqrt(np.vdot(x, x))


def scale(x: Any, factor: Any) -> None:
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


def keeps_zeros(x: Any) -> bool:
    """Does `scale` leave a 0 as it is where the factor, unknown to the host, is NaN?"""
    return not isinstance(x, np.ndarray) and _kernels(x) is not None


def _kernels(x: Any) -> Any | None:
    if isinstance(x, np.ndarray) and x.size < SHORTEST or not x.flags.c_contiguous:
        return None
    return registry.find("norm", x)
