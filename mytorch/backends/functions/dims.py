"""Which dims functions keep: rules that take the arguments of a NumPy function, and return their labels.

Of arrays the rules read nothing but shape and dtype. A rule may know less than is true, never more: what it
gives a label can be cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .labels import Dims, Label, Labels, Shape, Shaped, arrays_in, broadcast, of_text, without_lonely

Rule: TypeAlias = Callable[..., Labels]
Axis: TypeAlias = int | Sequence[int] | None
_BYTE = np.zeros((), np.int8)


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Returns the axes as numbers from 0 on; None means all."""
    return tuple(range(ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, ndim)


def all_of(x: Shaped) -> Dims:
    return tuple(range(len(x.shape)))


def without(dims: Dims, axes: Sequence[int]) -> Dims:
    """The labels, with None for these axes."""
    return tuple([None if d in axes else label for d, label in enumerate(dims)])


# Elementwise.


def elementwise(*args: object, results: int = 1, **kwargs: object) -> Labels:
    """All arrays are broadcast to the result."""
    inputs, whole = broadcast(*[x.shape for x in arrays_in(args, kwargs)])
    return Labels(inputs, (whole,) * results)


def same(x: Shaped, *args: object, **kwargs: object) -> Labels:
    """All dims are those of the first argument."""
    others = [(None,) * len(y.shape) for y in arrays_in(args, kwargs)]
    return Labels((all_of(x), *others), (all_of(x),))


def chosen(condition: Shaped, *values: Shaped) -> Labels:
    """`where`."""
    if not values:
        raise NotImplementedError("np.where of a condition alone is np.nonzero")
    return elementwise(condition, *values)


def outer(x: Shaped, y: Shaped, **kwargs: object) -> Labels:
    """`ufunc.outer`: the dims of one array, then those of the other."""
    dims = tuple([("y", d) for d in range(len(y.shape))])
    return Labels((all_of(x), dims), ((*all_of(x), *dims),))


def like(x: Shaped, *args: object, shape: object = None, **kwargs: object) -> Labels:
    """`zeros_like` and its kin."""
    return elementwise(x, args, kwargs) if shape is None else made(shape, x, *args, **kwargs)


def made(shape: int | Shape, *args: object, **kwargs: object) -> Labels:
    """A new array of this shape, of whose dims none is an argument's."""
    ndim = 1 if isinstance(shape, (int, np.integer)) else len(shape)
    return Labels(tuple([(None,) * len(x.shape) for x in arrays_in(args, kwargs)]), ((None,) * ndim,))


def whole(*ndims: int) -> Rule:
    """Results of these numbers of dims, each of which depends on all elements."""

    def rule(*args: object, **kwargs: object) -> Labels:
        inputs = tuple([(None,) * len(x.shape) for x in arrays_in(args, kwargs)])
        return Labels(inputs, tuple([(None,) * n for n in ndims]))

    return rule


# Reductions, scans, sorting: along axes.


def reduced(combine: str | None = None, axis: Axis = None) -> Rule:
    """Reductions over axes; by default over this one, None for all."""

    def rule(x, axis=axis, *rest, keepdims=False, **options) -> Labels:
        dims, axes = all_of(x), axes_of(axis, len(x.shape))
        is_plain = not {name for name, value in options.items() if value is not None} - {"dtype", "out"}
        others = tuple([(None,) * len(y.shape) for y in arrays_in(rest, options)])
        if rest or others:  # keepdims by position, or a mask
            raise NotImplementedError("a reduction with arguments by position, or with a mask")
        kept = without(dims, axes) if keepdims else tuple([d for d in dims if d not in axes])
        combined = combine if is_plain else None
        return Labels((dims if combined else without(dims, axes),), (kept,), combined)

    return rule


def norm(x: Shaped, ord: object = None, axis: Axis = None, keepdims: bool = False) -> Labels:
    """`linalg.norm`."""
    return reduced()(x, axis, keepdims=keepdims)


def traced(x: Shaped, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Labels:
    return reduced()(x, (axis1, axis2))


def along(default: Axis, axis: int = 1, flattens: bool = True) -> Rule:
    """Functions that need the dims of some axes as a whole, and make as many dims.

    Args:
        default: the axis.
        axis: its position among the arguments.
        flattens: None means that the array is flattened; else it means all axes.
    """

    def rule(x, *rest, **options) -> Labels:
        name = "axes" if "axes" in options else "axis"
        given = options.get(name, rest[axis - 1] if len(rest) >= axis else default)
        others = tuple([(None,) * len(y.shape) for y in arrays_in(rest, options)])
        if given is None and flattens:
            return Labels(((None,) * len(x.shape), *others), ((None,),))
        dims = without(all_of(x), axes_of(given, len(x.shape)))
        return Labels((dims, *others), (dims,))

    return rule


def differences(x: Shaped, n: int = 1, axis: int = -1, **beside: object) -> Labels:
    """`diff`."""
    if beside:
        raise NotImplementedError("np.diff with arrays before or behind")
    return along(-1)(x, axis)


def along_keys(keys: Shaped, axis: int = -1) -> Labels:
    """`lexsort` of several arrays."""
    keys = [*keys] if isinstance(keys, (tuple, list)) else []
    dims = [without(all_of(x), axes_of(axis, len(x.shape))) for x in keys]
    return Labels(tuple(dims), (dims[0],))


def triangle(x: Shaped, k: int = 0) -> Labels:
    """`tril`, `triu`: of each matrix."""
    return along((-2, -1), 2)(x)


# Views, and copies of other shapes.


def view(function: Callable) -> Rule:
    """What NumPy returns as a view: each dim is known by its stride, which no other dim has."""

    def rule(x, *args, **kwargs) -> Labels:
        steps = tuple([1 << d for d in all_of(x)])  # elements are never read
        seen = function(np.lib.stride_tricks.as_strided(_BYTE, x.shape, steps), *args, **kwargs)
        views = seen if isinstance(seen, (tuple, list)) else [seen]
        return without_lonely(Labels((all_of(x),), tuple([_dims_of_view(y, x.shape) for y in views])))

    return rule


def _dims_of_view(y: np.ndarray, shape: Shape) -> Dims:
    dims: list[Label] = []
    for n, step in zip(y.shape, y.strides, strict=True):
        d = step.bit_length() - 1
        is_kept = 0 < step == 1 << d and d < len(shape) and shape[d] == n and d not in dims
        dims.append(d if is_kept else None)
    return tuple(dims)


def expanded(x: Shaped, axis: int | Sequence[int]) -> Labels:
    """`expand_dims`."""
    axes = axes_of(axis, len(x.shape) + (1 if isinstance(axis, int) else len(axis)))
    dims = [*all_of(x)]
    for d in sorted(axes):
        dims.insert(d, None)
    return Labels((all_of(x),), (tuple(dims),))


def windows(x: Shaped, window_shape: int | Shape, axis: Axis = None, **options: object) -> Labels:
    """`sliding_window_view`: windows of one element alone keep their dim."""
    sizes = (window_shape,) if isinstance(window_shape, (int, np.integer)) else tuple(window_shape)
    axes = axes_of(axis, len(x.shape))
    dims = without(all_of(x), [d for d, n in zip(axes, sizes, strict=True) if n > 1])
    return Labels((dims,), ((*dims, *[None for _ in sizes]),))


def viewed(x: Shaped, dtype: object = None) -> Labels:
    """`.view`: elements of another size change the last dim."""
    is_same = dtype is None or np.dtype(dtype).itemsize == x.dtype.itemsize
    dims = all_of(x) if is_same else without(all_of(x), (len(x.shape) - 1,))
    return Labels((dims,), (dims,))


def reshaped(x: Shaped, *shape: int | Shape, order: str = "C", copy: bool | None = None) -> Labels:
    """A dim of the result begins where one of the array does: (4, 6) becomes (24,), of 4 blocks of 6."""
    old = x.shape
    new = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if -1 in new:
        known = math.prod([n for n in new if n != -1])
        new = tuple([math.prod(old) // max(known, 1) if n == -1 else n for n in new])
    if old == new:
        return elementwise(x)
    if order != "C" or 0 in old:
        return Labels(((None,) * len(old),), ((None,) * len(new),))
    starts = {(math.prod(old[:d]), n == 1): d for d, n in enumerate(old)}
    dims: list[Label] = []
    for d, n in enumerate(new):
        k = starts.pop((math.prod(new[:d]), n == 1), None)
        dims.append(k if k is not None and (old[k] == n or math.gcd(old[k], n) > 1) else None)
    return without_lonely(Labels((all_of(x),), (tuple(dims),)))


def flattened(x: Shaped, order: str = "C") -> Labels:
    """`ravel`, `.flatten`."""
    return reshaped(x, (-1,), order=order)


def repeated(x: Shaped, repeats: object, axis: int | None = None) -> Labels:
    """`repeat`: as many of each element are a block; other numbers for other elements need the whole dim."""
    if axis is None and len(x.shape) != 1:
        return whole(1)(x, repeats)
    (axis,) = axes_of(0 if axis is None else axis, len(x.shape))
    is_block = isinstance(repeats, (int, np.integer))
    dims = all_of(x) if is_block else without(all_of(x), (axis,))
    return Labels((dims, *[(None,) * len(y.shape) for y in arrays_in(repeats)]), (dims,))


def tiled(x: Shaped, reps: int | Sequence[int]) -> Labels:
    reps = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    ndim = max(len(reps), len(x.shape))
    reps, dims = (1,) * (ndim - len(reps)) + reps, (None,) * (ndim - len(x.shape)) + all_of(x)
    dims = tuple([label if n == 1 else None for label, n in zip(dims, reps, strict=True)])
    return without_lonely(Labels((all_of(x),), (dims,)))


def padded(x: Shaped, pad_width: object, *args: object, **kwargs: object) -> Labels:
    widths = np.broadcast_to(np.asarray(pad_width), (len(x.shape), 2)).tolist()
    dims = without(all_of(x), [d for d, width in enumerate(widths) if any(width)])
    return Labels((dims,), (dims,))


def joined(arrays: Sequence[Shaped], axis: int | None = 0, *args: object, **kwargs: object) -> Labels:
    """`concatenate`."""
    if axis is None:
        return whole(1)(arrays)
    dims = without(all_of(arrays[0]), axes_of(axis, len(arrays[0].shape)))
    return Labels((dims,) * len(arrays), (dims,))


def stacked(arrays: Sequence[Shaped], axis: int = 0, *args: object, **kwargs: object) -> Labels:
    dims = all_of(arrays[0])
    (axis,) = axes_of(axis, len(dims) + 1)
    return Labels((dims,) * len(arrays), ((*dims[:axis], None, *dims[axis:]),))


def broadcast_together(*args: object, subok: bool = False) -> Labels:
    """`broadcast_arrays`."""
    inputs, dims = broadcast(*[x.shape for x in args])
    return Labels(inputs, (dims,) * len(args))


# Products, linear algebra: by text.


def product(x: Shaped, y: Shaped, **options: object) -> Labels:
    """`matmul`."""
    _check_axes(options)
    left, right = "...ik" if len(x.shape) > 1 else "k", "...kj" if len(y.shape) > 1 else "k"
    out = "".join([part for part in ("...", "i", "j") if part in left + right])
    return of_text(f"{left},{right}->{out}", [x.shape, y.shape], "add")


def _check_axes(options: dict[str, object]) -> None:
    if not options.keys().isdisjoint(("axis", "axes", "keepdims")):
        raise NotImplementedError(f"the dims of a product with {[*options]}")


def dot(x: Shaped, y: Shaped) -> Labels:
    """`dot`: like `matmul` up to two dims."""
    if not (np.shape(x) and np.shape(y)):
        return elementwise(x, y)
    if len(y.shape) > 2:
        raise NotImplementedError(f"the dims of np.dot for an array of {len(y.shape)} dims")
    return product(x, y)


def einsum(subscripts: str, *operands: Shaped, **kwargs: object) -> Labels:
    """`einsum` with "->"; a dim of size 1 that is broadcast has no label."""
    text = subscripts.replace(" ", "")
    if "->" not in text or any(["..." in term[1:] for term in text.replace("->", ",").split(",")]):
        raise NotImplementedError(f"the dims of np.einsum with {subscripts!r}")
    found = of_text(text, [x.shape for x in operands], "add")
    sizes: dict[Label, int] = {}
    for dims, x in zip(found.inputs, operands, strict=True):
        for label, n in zip(dims, x.shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), n)
    inputs = [
        tuple([label if n == sizes[label] else None for label, n in zip(dims, x.shape, strict=True)])
        for dims, x in zip(found.inputs, operands, strict=True)
    ]
    return found._replace(inputs=tuple(inputs))


def by_text(text: str, combine: str | None = None) -> Rule:
    """Functions of arrays by position that have these dims: "...mn->...ab" of a batch of matrices."""

    def rule(*args, **options: object) -> Labels:
        _check_axes(options)
        return of_text(text, [getattr(x, "shape", None) for x in args], combine)

    return rule


def solved(a: Shaped, b: Shaped) -> Labels:
    """`linalg.solve`: each column by itself."""
    return by_text("...mn,n->...a" if len(b.shape) == 1 else "...mn,...nk->...ak")(a, b)


def qr(x: Shaped, mode: str = "reduced") -> Labels:
    return by_text("...mn->...ab" if mode == "r" else "...mn->...ab,...cd")(x)


def svd(x: Shaped, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Labels:
    return by_text("...mn->...ab,...c,...de" if compute_uv else "...mn->...c")(x)


def counted(x: Shaped, weights: Shaped | None = None, minlength: int = 0) -> Labels:
    """`bincount`: counts of parts are added, if there are as many."""
    shapes = [x.shape, None if weights is None else weights.shape]
    return of_text("n,n->a", shapes, "add" if minlength else None)
