"""`x[index]` and `x[index] = value` for meta arrays."""

from __future__ import annotations

import operator

import numpy as np

from ..address import address_of
from ..door import RawArray
from .array import MetaArray, from_result, view_as
from .cache import cached
from .layout import Shape, layout_of, sample_of, sampled

FULL = slice(None)


def getitem(x: MetaArray, index: object) -> MetaArray:
    """Returns a view for a basic index, else a new array.

    Raises:
        IndexError: NumPy's.
        NotImplementedError: a mask: how many elements it chooses depends on the data.
    """
    items = _items(index)
    if not any(map(_is_array, items)):
        return view_as(x, x.layout.array[items])
    shape, result = _gathered(*_split(x, [_read(i) if _is_array(i) else i for i in items]))
    return from_result(result, shape)


def setitem(x: MetaArray, index: object, value: object) -> None:
    """Checks that the value can be broadcast to `x[index]`, as it always can if it is one element."""
    if not hasattr(value, "dtype") and np.asarray(value).dtype.kind not in "biufc":
        raise TypeError(f"a meta array holds numbers, got {value!r}")
    shape = tuple(np.shape(value))
    if np.size(value) == 1 and any(map(_is_mask, _items(index))):
        return
    target = getitem(x, index).shape
    while len(shape) > len(target) and shape[0] == 1:
        shape = shape[1:]
    if len(shape) > len(target) or any(
        n not in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False)
    ):
        raise ValueError(f"could not broadcast input array from shape {np.shape(value)} into shape {target}")


def _items(index: object) -> tuple:
    """The index as a tuple with an ellipsis, without which NumPy would read an element for one int a dim."""
    items = index if isinstance(index, tuple) else (index,)
    return items if any([i is Ellipsis for i in items]) else (*items, ...)


def _is_array(i: object) -> bool:
    return isinstance(i, (MetaArray, np.ndarray, list, tuple, range, bool, np.bool))


def _is_mask(i: object) -> bool:
    return isinstance(i, bool) or getattr(i, "dtype", None) == np.dtype(bool)


def _read(i: object) -> RawArray:
    """An array of integers."""
    if isinstance(i, (list, tuple, range)):
        i = np.asarray(i) if i else np.zeros(0, np.int64)
    if _is_mask(i):
        if isinstance(i, np.ndarray) and i.ndim == 1:
            return np.flatnonzero(i)
        raise NotImplementedError(
            "a mask can't index a meta tensor: how many elements it chooses depends on the data"
        )
    if i.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return i


def _split(x: MetaArray, items: list) -> tuple[np.ndarray, list]:
    """Returns the layout after slices and new dims, and FULL, an array or an int for each of its dims."""
    taken = sum([i is not None and i is not Ellipsis for i in items])
    if taken > x.ndim:
        raise IndexError(f"too many indices for array: it has {x.ndim} dims, but {taken} were indexed")
    basic, advanced, dim = [], [], 0
    for i in items:
        if i is Ellipsis:
            rest = [FULL] * (x.ndim - taken)
            basic += rest
            advanced += rest
            dim += len(rest)
            continue
        is_basic = i is None or isinstance(i, slice)
        basic.append(i if is_basic else FULL)
        advanced.append(FULL if is_basic else i)
        if not is_basic and not hasattr(i, "shape") and not -x.shape[dim] <= operator.index(i) < x.shape[dim]:
            raise IndexError(f"index {i} is out of bounds for axis {dim} with size {x.shape[dim]}")
        dim += i is not None
    return x.layout.array[tuple(basic)], advanced


def _zeros(index: object) -> np.ndarray:
    """Returns indices of the first element, which lie in memory as other indices: the result follows them."""
    x = np.asarray(sampled(index))
    if not x.size:
        return np.zeros(x.shape, np.int64)
    low, high = np.lib.array_utils.byte_bounds(x)
    return np.ndarray(x.shape, x.dtype, bytearray(high - low), address_of(x) - low, x.strides)


def _gathered(part: np.ndarray, advanced: list) -> tuple[Shape, np.ndarray]:
    """Returns the shape of `part[advanced]`, and the result for the sample."""
    places = [d for d, i in enumerate(advanced) if not isinstance(i, slice)]
    shapes = [np.shape(advanced[d]) for d in places]
    try:
        index = np.broadcast_shapes(*shapes)
    except ValueError:  # NumPy's error, for indices, is another one
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    rest = [n for d, n in enumerate(part.shape) if d not in places]
    first = places[0] if places[-1] - places[0] == len(places) - 1 else 0  # NumPy's rule for where they go
    sample = sample_of(layout_of(part))
    if any([part.shape[d] == 0 for d in places]):  # zeros, the indices into the sample, must be allowed
        sample = np.ones([max(n, 1) if d in places else n for d, n in enumerate(sample.shape)], part.dtype)
    probe = [i if isinstance(i, slice) else _zeros(i) for i in advanced]
    return (*rest[:first], *index, *rest[first:]), sample[tuple(probe)]


MetaArray.__getitem__, MetaArray.__setitem__ = cached(getitem), cached(setitem)
