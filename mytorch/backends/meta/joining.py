"""NumPy's functions that join, repeat and gather meta arrays."""

from __future__ import annotations

import numpy as np

from .array import MetaArray, from_result, new
from .functions import instead_of, reshape, written
from .layout import sampled
from .ufuncs import axes_of


@instead_of(np.concatenate)
def _concatenate(arrays, axis=0, out=None, dtype=None, casting="same_kind"):
    arrays = list(arrays)
    result = np.concatenate([sampled(x) for x in arrays], axis, dtype=dtype, casting=casting)
    if axis is None:
        return written(from_result(result, (sum(map(np.size, arrays)),), checked=False), out)
    (axis,), shapes = axes_of(axis, result.ndim), [tuple(np.shape(x)) for x in arrays]
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        raise ValueError(
            "all the input array dimensions except for the concatenation axis must match exactly, got the "
            f"shapes {shapes}"
        )
    shape = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    return written(from_result(result, shape, checked=False), out)


@instead_of(np.stack)
def _stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = list(arrays)
    result = np.stack([sampled(x) for x in arrays], axis, dtype=dtype, casting=casting)
    shapes = {tuple(np.shape(x)) for x in arrays}
    if len(shapes) > 1:
        raise ValueError(f"all input arrays must have the same shape, got {sorted(shapes)}")
    (axis,), shape = axes_of(axis, result.ndim), shapes.pop()
    return written(from_result(result, (*shape[:axis], len(arrays), *shape[axis:]), checked=False), out)


@instead_of(np.repeat)
def _repeat(x, repeats, axis=None):
    x = reshape(x, -1) if axis is None else x
    (axis,) = axes_of(0 if axis is None else axis, x.ndim)
    if isinstance(repeats, MetaArray):
        raise NotImplementedError("np.repeat of a meta tensor: the result's shape depends on the repeats")
    repeats = np.asarray(repeats)
    total = int(repeats.sum()) if repeats.size > 1 else x.shape[axis] * int(repeats.reshape(-1)[0])
    return new((*x.shape[:axis], total, *x.shape[axis + 1 :]), x.dtype)


@instead_of(np.tile)
def _tile(x, reps):
    reps = tuple(np.atleast_1d(reps).tolist())
    ndim = max(len(reps), x.ndim)
    shape, reps = (1,) * (ndim - x.ndim) + x.shape, (1,) * (ndim - len(reps)) + reps
    return new([n * times for n, times in zip(shape, reps, strict=True)], x.dtype)


@instead_of(np.pad)
def _pad(x, pad_width, mode="constant", **kwargs):
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    shape = [n + sum(width) for n, width in zip(x.shape, widths, strict=True)]
    return new(shape, x.dtype, "F" if x.flags.fnc else "C")


@instead_of(np.diff)
def _diff(x, n=1, axis=-1):
    (axis,) = axes_of(axis, x.ndim)
    before = (slice(None),) * axis
    for _ in range(n):
        x = np.subtract(x[(*before, slice(1, None))], x[(*before, slice(None, -1))])
    return x


@instead_of(np.take)
def _take(x, indices, axis=None, out=None, mode="raise"):
    x = reshape(x, -1) if axis is None else x
    (axis,), dtype = axes_of(0 if axis is None else axis, x.ndim), getattr(indices, "dtype", np.dtype(int))
    if dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {dtype} to int64 according to the rule 'safe'")
    return written(new((*x.shape[:axis], *np.shape(indices), *x.shape[axis + 1 :]), x.dtype), out)


@instead_of(np.take_along_axis)
def _take_along_axis(x, indices, axis=-1):
    (axis,) = axes_of(axis, x.ndim)
    if np.ndim(indices) != x.ndim or np.result_type(indices).kind not in "iu":
        raise IndexError(f"np.take_along_axis of {x.ndim} dims at {np.ndim(indices)}, {indices.dtype}")
    rest = np.broadcast_shapes(*[(*s[:axis], *s[axis + 1 :]) for s in (x.shape, np.shape(indices))])
    return new((*rest[:axis], np.shape(indices)[axis], *rest[axis:]), x.dtype)
