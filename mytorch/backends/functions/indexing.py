"""Which dims are kept where elements are taken at indices: rules like those of `dims`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .dims import all_of, axes_of, view, without
from .labels import Dims, Labels, Shaped, arrays_in, broadcast, without_lonely


def getitem(x: Shaped, index: Any) -> Labels:
    """`x[index]`: dims that a slice takes as they are, and the dims of indices."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any([isinstance(i, (bool, np.bool_)) for i in items]):
        raise NotImplementedError("an index that is a bool")
    used = sum([_dims_used(i) for i in items])
    at = next((k for k, i in enumerate(items) if i is Ellipsis), None)
    rest = [slice(None)] * (len(x.shape) - used)
    items = [*items, *rest] if at is None else [*items[:at], *rest, *items[at + 1 :]]
    given = [*arrays_in(index)]
    advanced = any([_is_array(i) for i in items])
    basic: list[Any] = []
    indices: list[Any] = []  # for each dim of the basic view, None if nothing but a slice
    for i in items:
        is_basic = i is None or isinstance(i, slice) or not advanced
        basic += [_readable(i)] if is_basic else [slice(None)] * _dims_used(i)
        indices += ([None] if i is None or isinstance(i, slice) else []) if is_basic else [i] * _dims_used(i)
    (kept,) = view(lambda seen: seen[tuple([*basic, ...])])(x).outputs
    if not advanced:
        return without_lonely(Labels((all_of(x), *[() for _ in given]), (kept,)))
    places = [d for d, i in enumerate(indices) if i is not None]
    of_indices, dims = _of_indices([indices[d] for d in places], given)
    first = places[0] if places[-1] - places[0] == len(places) - 1 else 0  # NumPy's rule for where they go
    rest = [label for d, label in enumerate(kept) if d not in places]
    return without_lonely(Labels((all_of(x), *of_indices), ((*rest[:first], *dims, *rest[first:]),)))


def _is_array(i: object) -> bool:
    return isinstance(i, list) or isinstance(getattr(i, "shape", None), tuple)


def _is_mask(i: object) -> bool:
    dtype = np.asarray(i).dtype if isinstance(i, list) else getattr(i, "dtype", int)
    return np.dtype(dtype) == bool


def _dims_used(i: object) -> int:
    if i is None or i is Ellipsis:
        return 0
    return len(np.shape(i)) if _is_array(i) and _is_mask(i) else 1


def _readable(i: Any) -> Any:
    """A slice whose ends are numbers; another one, unlike that of the whole dim, if they aren't known."""
    known = not isinstance(i, slice) or not [*arrays_in(i)]
    return i if known else slice(1, None)


def _of_indices(indices: list[Any], given: list[Any]) -> tuple[list[Dims], Dims]:
    """Returns the labels of arrays of indices, and of the dims that these give."""
    if any(map(_is_mask, indices)):
        ndim = max([1 if _is_mask(i) else len(np.shape(i)) for i in indices])
        return [(None,) * len(x.shape) for x in given], (None,) * ndim
    _, dims = broadcast(*[np.shape(i) for i in indices], name="at")
    size = np.broadcast_shapes(*[np.shape(i) for i in indices])
    found = [broadcast(x.shape, size, name="at")[0][0] for x in given]
    return found, dims


def taken(x: Shaped, indices: Shaped, axis: int | None = None, *args: object, **kwargs: object) -> Labels:
    """`take`."""
    (of_indices,), dims = broadcast(np.shape(indices), name="at")
    given = [of_indices for _ in arrays_in(indices)]
    if axis is None:
        return Labels(((None,) * len(x.shape), *given), (dims,))
    (axis,), rest = axes_of(axis, len(x.shape)), without(all_of(x), axes_of(axis, len(x.shape)))
    return without_lonely(Labels((rest, *given), ((*rest[:axis], *dims, *rest[axis + 1 :]),)))


def taken_along(x: Shaped, indices: Shaped, axis: int | None = -1) -> Labels:
    """`take_along_axis`: the other dims are broadcast."""
    if axis is None:
        return Labels(((None,) * len(x.shape), (0,)), ((0,),))
    (axis,) = axes_of(axis, len(x.shape))
    shapes = [(*s[:axis], 1, *s[axis + 1 :]) for s in (x.shape, indices.shape)]
    (kept, beside), dims = broadcast(*shapes)
    given = without(kept, (axis,)), (*beside[:axis], "at", *beside[axis + 1 :])
    return Labels(given, ((*dims[:axis], "at", *dims[axis + 1 :]),))


def searched(a: Shaped, v: Shaped, side: str = "left", sorter: Shaped | None = None) -> Labels:
    """`searchsorted`: each of the second array by itself, in the first as a whole."""
    others = [(None,) * len(y.shape) for y in arrays_in(sorter)]
    of_v = [all_of(y) for y in arrays_in(v)]
    return Labels(((None,) * len(a.shape), *of_v, *others), (tuple(range(len(np.shape(v)))),))


def contained(x: Shaped, test: Shaped, *args: object, **kwargs: object) -> Labels:
    """`isin`."""
    return Labels((all_of(x), *[(None,) * len(y.shape) for y in arrays_in(test)]), (all_of(x),))
