"""Views of all windows over an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .device import RawArray, is_on_gpu
from .kinds import cupy


def sliding_window_view(
    x: RawArray, window_shape: Sequence[int], axis: Sequence[int] | None = None, writeable: bool = False
) -> RawArray:
    """Returns NumPy's `sliding_window_view`; on a GPU it is always writeable.

    CuPy's copies the shape to the GPU and reads it back (14.2): it waits, and can't be part of a CUDA graph.

    Raises:
        ValueError: a window is larger than the array.
    """
    if not is_on_gpu(x):
        how = {"writeable": True} if writeable else {}
        return np.lib.stride_tricks.sliding_window_view(x, window_shape, axis, **how)
    shape, axis = list(x.shape), range(x.ndim) if axis is None else axis
    for n, k in zip(window_shape, axis, strict=True):
        if not 0 <= n <= shape[k]:
            raise ValueError(f"a window of {n} elements doesn't fit an axis of {shape[k]}")
        shape[k] -= n - 1
    strides = (*x.strides, *[x.strides[k] for k in axis])
    return cupy().lib.stride_tricks.as_strided(x, (*shape, *window_shape), strides)
