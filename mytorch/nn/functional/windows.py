"""
Sliding windows over the last dims of raw arrays: convolution, pooling, unfold and fold are made of them.

Along a dim of n elements, window i of `kernel` elements has its element j at i * stride + j * dilation. The
windows of an array are a view of it (`windows`); the adjoint adds each window to its elements
(`overlap_add`). Both loop over the elements of a window, not over windows or the batch.

Source of the sizes: Dumoulin & Visin, "A guide to convolution arithmetic for deep learning", 2016,
https://arxiv.org/abs/1603.07285
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from ...backends.device import RawArray
from ...backends.sliding_window import sliding_window_view
from ...core.op import index_of
from .types import IntOrInts

Ints = tuple[int, ...]


def ntuple(value: IntOrInts, n: int, name: str, least: int | None = None) -> Ints:
    """Returns `value`, one int or one for each of n dims, as a tuple of n ints.

    Args:
        name: "function(): argument", for errors.
        least: the smallest valid value.

    Raises:
        TypeError: not ints.
        RuntimeError: not n of them, or one is below `least`.
    """
    values = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    try:
        ints = tuple([index_of(v) for v in values])
    except TypeError:
        ints = (True,)
    if any([isinstance(v, bool) for v in (*values, *ints)]):
        raise TypeError(f"{name} must be an int or {n} ints, got {value!r}")
    if len(ints) not in (1, n):
        raise RuntimeError(f"{name} must be an int or {n} ints, got {value!r}")
    if least is not None and any([i < least for i in ints]):
        raise RuntimeError(f"{name} must be at least {least}, got {value!r}")
    return ints * n if len(ints) == 1 else ints


def read_padding(
    name: str, padding: IntOrInts | str, kernel: Ints, stride: Ints, dilation: Ints
) -> tuple[tuple[int, int], ...]:
    """Returns the padding of a convolution, ints, "valid" or "same", as (before, after) for each dim.

    Raises:
        RuntimeError: another string, a stride with "same", negative ints or a wrong number of them.
    """
    if not isinstance(padding, str):
        return tuple((p, p) for p in ntuple(padding, len(kernel), f"{name}(): padding", 0))
    if padding not in ("same", "valid"):
        raise RuntimeError(f"{name}(): padding is 'same', 'valid' or ints, got the string {padding!r}")
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if max(stride) > 1:
        raise RuntimeError(f"{name}(): padding='same' is not supported with a stride, got {stride}")
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((t // 2, t - t // 2) for t in total)


def output_size(
    n: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1, ceil_mode: bool = False
) -> int:
    """Returns the number of windows along a dim of n elements padded at both ends; below 1 if none fits.

        floor((n + 2 padding - dilation (kernel - 1) - 1) / stride) + 1

    Args:
        ceil_mode: round up instead: the last window may exceed the end, if it begins before the padding at
            the end.
    """
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= n + padding else count


def windows(x: RawArray, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> RawArray:
    """Returns all windows over the last dims, (..., n...) to (..., out..., kernel...), a read-only view."""
    dims = len(kernel)
    reach = tuple([d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)])
    axes = tuple(range(-dims, 0))
    view = sliding_window_view(x, reach, axes)
    return view[(..., *[slice(None, None, step) for step in (*stride, *dilation)])]


def overlap_add(
    w: RawArray, shape: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> RawArray:
    """Returns the adjoint of `windows`: (..., out..., kernel...) to (..., *shape), overlaps summed.

    Args:
        w: in any memory layout; fastest with the kernel's dims outermost in memory.
        shape: of the last dims of the result; 0 outside all windows.
    """
    dims = len(shape)
    out, kernel = w.shape[-2 * dims : -dims], w.shape[-dims:]
    y = np.zeros((*w.shape[: -2 * dims], *shape), w.dtype, like=w)
    for offset in itertools.product(*map(range, kernel)):
        y[(..., *element_slices(offset, out, stride, dilation))] += w[(..., *offset)]
    return y


def element_slices(
    offset: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """Returns the slices of x that hold the element `offset` of every window."""
    return tuple(
        [
            slice(d * j, d * j + s * (n - 1) + 1, s)
            for j, n, s, d in zip(offset, out, stride, dilation, strict=True)
        ]
    )


def padded(x: RawArray, padding: Sequence[tuple[int, int]], value: float = 0) -> RawArray:
    """Returns x with (before, after) elements `value` around each of its last dims; x itself without any."""
    if not any([p for pair in padding for p in pair]):
        return x
    lead = x.ndim - len(padding)
    sizes = [n + before + after for n, (before, after) in zip(x.shape[lead:], padding, strict=True)]
    y = np.full_like(x, value, order="C", shape=(*x.shape[:lead], *sizes))
    inner(y, padding)[...] = x
    return y


def inner(y: RawArray, padding: Sequence[tuple[int, int]]) -> RawArray:
    """Returns a view of the result of `padded` without the padding."""
    lead = y.ndim - len(padding)
    return y[
        (..., *[slice(before, n - after) for n, (before, after) in zip(y.shape[lead:], padding, strict=True)])
    ]
