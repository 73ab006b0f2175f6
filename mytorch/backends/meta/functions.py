"""NumPy's functions of meta arrays: a table of rules. A function that isn't in it raises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..functions.table import REDUCTION, VIEW, functions_of
from .array import OPERANDS, MetaArray, from_result, new, new_of, view_as
from .cache import call
from .creation import CREATION
from .layout import Shape, layout_of, like_sample, sample_of, sampled
from .ufuncs import call_ufunc, reduced_shape

SHAPES: dict[Callable, Callable] = {}  # by function: the shape of its result; samples give the rest
FUNCTIONS: dict[Callable, Callable] = {getattr(np, name): function for name, function in CREATION.items()}
VIEWS = functions_of(VIEW)
OF_DTYPES = {np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj}
DATA_DEPENDENT = functions_of(REDUCTION, without_dims=True)  # they search


@functools.lru_cache(maxsize=1024)
def _rule(function: Callable) -> Callable:
    return functools.partial(call_function, function)


def _array_function(self, function, types, args, kwargs):
    if len(types) > 1 and not all([issubclass(kind, OPERANDS) for kind in types]):
        return NotImplemented  # a Tensor's or an Array's call
    if function in OF_MEMORY:
        return OF_MEMORY[function](*args, **kwargs)
    return call(_rule(function), args, kwargs)


MetaArray.__array_function__ = _array_function


def call_function(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Returns what `function(*args, **kwargs)` returns, with new meta arrays or views.

    Raises:
        NotImplementedError: it has no rule, or the shape of its result depends on the data.
    """
    if function in FUNCTIONS:
        return FUNCTIONS[function](*args, **kwargs)
    if function in SHAPES:
        return _by_rule(function, args, kwargs)
    if function in VIEWS:
        x, *rest = args
        return _as_views(x, function(x.layout.array, *rest, **kwargs))
    if function in OF_DTYPES:
        return function(*sampled(args), **kwargs)
    name = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
    if function in DATA_DEPENDENT:
        raise NotImplementedError(f"{name} of a meta tensor: its result depends on the data")
    raise NotImplementedError(f"{name} has no rule for meta tensors")


def _by_rule(function: Callable, args: tuple, kwargs: dict) -> Any:
    shape = SHAPES[function](*args, **{n: v for n, v in kwargs.items() if n not in ("out", "dtype")})
    given = {name: sampled(value) for name, value in kwargs.items() if name != "out"}
    with np.errstate(all="ignore"):
        result = function(*sampled(args), **given)
    return written(from_result(result, shape), kwargs.get("out"))


def written(result: MetaArray, out: MetaArray | None) -> MetaArray:
    """Returns the result, or `out` if it is given and the result fits."""
    if out is None:
        return result
    out[...] = result
    return out


def _as_views(x: MetaArray, made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return type(made)([_as_views(x, item) for item in made])
    if isinstance(made, np.generic):  # what NumPy gives where there are no dims is a copy
        return new((), made.dtype)
    return view_as(x, made)


def shape_of(*functions: Callable) -> Callable:
    """Registers the function that returns the shape of these functions' result."""

    def register(shape: Callable) -> Callable:
        SHAPES.update(dict.fromkeys(functions, shape))
        return shape

    return register


def instead_of(*functions: Callable) -> Callable:
    """Registers a function that runs in place of these."""

    def register(function: Callable) -> Callable:
        FUNCTIONS.update(dict.fromkeys(functions, function))
        return function

    return register


# Copies, views, facts.

FUNCTIONS[np.real], FUNCTIONS[np.imag] = (lambda x: x.real), (lambda x: x.imag)
FUNCTIONS[np.shape], FUNCTIONS[np.ndim] = (lambda x: x.shape), (lambda x: x.ndim)
FUNCTIONS[np.size] = lambda x, axis=None: x.size if axis is None else x.shape[axis]


@instead_of(np.reshape)
def reshape(x: MetaArray, shape: int | Shape, order: str = "C", copy: bool | None = None) -> MetaArray:
    """Returns a view if NumPy can make one, else a new array."""
    if copy is not True:
        try:
            return view_as(x, np.reshape(x.layout.array, shape, order=order, copy=False))
        except ValueError as error:
            if "copy" not in str(error):
                raise
    whole = new(x.shape, x.dtype, order).layout.array
    return new_of(layout_of(np.reshape(whole, shape, order=order, copy=False)))


@instead_of(np.ravel)
def _ravel(x, order="C"):
    return reshape(x, -1, order)


@instead_of(np.copy)
def copy(x: MetaArray, order: str = "K") -> MetaArray:
    """Returns an array with a storage of its own."""
    return new_of(like_sample(x.shape, np.array(sample_of(x.layout), order=order)))


@instead_of(np.broadcast_arrays)
def _broadcast_arrays(*args, subok=False):
    shape = np.broadcast_shapes(*map(np.shape, args))
    return tuple([np.broadcast_to(x, shape) for x in args])


def _shares_memory(x, y, max_work=None):
    return isinstance(x, MetaArray) and isinstance(y, MetaArray) and x.storage is y.storage


OF_MEMORY = {np.may_share_memory: _shares_memory, np.shares_memory: _shares_memory}  # not of layouts alone


# Elementwise.


@shape_of(np.where, np.isclose)
def _broadcast(*args, **kwargs):
    return np.broadcast_shapes(*map(np.shape, args))


@instead_of(np.clip)
def _clip(x, a_min=None, a_max=None, out=None, *, min=None, max=None):
    low, high = min if a_min is None else a_min, max if a_max is None else a_max
    given = {} if out is None else {"out": (out,)}
    if low is not None and high is not None:
        return call_ufunc(np._core.umath.clip, "__call__", x, low, high, **given)
    if low is None and high is None:
        return call_ufunc(np.positive, "__call__", x, **given)
    bounded = (np.minimum, (x, high)) if low is None else (np.maximum, (x, low))
    return call_ufunc(bounded[0], "__call__", *bounded[1], **given)


@shape_of(np.round, np.nan_to_num, np.tril, np.triu, np.roll, np.fft.fftshift, np.fft.ifftshift)
def _same(x, *args, **kwargs):
    return np.shape(x)


# Reductions, scans, sorting.


@shape_of(
    np.sum, np.prod, np.max, np.min, np.mean, np.any, np.all, np.argmax, np.argmin, np.var, np.std, np.nansum,
    np.nanprod, np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd, np.median, np.count_nonzero, np.ptp,
)
def _reduced(x, axis=None, *args, keepdims=False, **kwargs):
    return reduced_shape(np.shape(x), axis, keepdims)


@shape_of(np.linalg.norm)
def _norm(x, ord=None, axis=None, keepdims=False):
    return reduced_shape(x.shape, axis, keepdims)


@shape_of(np.trace)
def _trace(x, offset=0, axis1=0, axis2=1, *args):
    return reduced_shape(x.shape, (axis1, axis2))


def _along(function: Callable, default: int | None) -> Callable:
    """The rule of a function of one axis, to whose result None gives one dim."""

    def call(x, axis=default, *args, **kwargs):
        if axis is None:
            return call(reshape(x, -1), 0, *args, **kwargs)
        return _by_rule(function, (x, axis, *args), kwargs)

    SHAPES[function] = _same
    return call


for _function in (np.cumsum, np.cumprod, np.nancumsum, np.nancumprod):
    FUNCTIONS[_function] = _along(_function, None)
for _function in (np.sort, np.argsort):
    FUNCTIONS[_function] = _along(_function, -1)


@instead_of(np.partition)
def _partition(x, kth, axis=-1, *args, **kwargs):
    return np.sort(x, axis)


@instead_of(np.argpartition)
def _argpartition(x, kth, axis=-1, *args, **kwargs):
    return np.argsort(x, axis)


@instead_of(np.lexsort)
def _lexsort(keys, axis=-1):
    return new(np.shape(keys[0]), np.int64)


@instead_of(np.searchsorted)
def _searchsorted(a, v, side="left", sorter=None):
    return new(np.shape(v), np.int64)


@instead_of(np.bincount)
def _bincount(x, weights=None, minlength=0):
    if not minlength:
        raise NotImplementedError("np.bincount of a meta tensor: there are as many as the largest value")
    return new(minlength, np.int64 if weights is None else np.float64)  # no index is out of bounds


@instead_of(np.isin)
def _isin(x, *args, **kwargs):
    return new(np.shape(x), bool)


# Products.


@instead_of(np.outer)
def _outer(x, y):
    return np.multiply.outer(np.reshape(x, -1), np.reshape(y, -1))


@instead_of(np.dot)
def _dot(x, y, out=None):
    if np.ndim(x) == 0 or np.ndim(y) == 0:
        return written(np.multiply(x, y), out)
    if np.ndim(y) > 2:
        raise NotImplementedError(f"np.dot has no rule for meta tensors of {np.ndim(y)} dims")
    return written(np.matmul(x, y), out)


@shape_of(np.vdot)
def _vdot(x, y):
    if np.size(x) != np.size(y):
        raise ValueError(f"vdot: shapes {np.shape(x)} and {np.shape(y)} don't match")
    return ()


@instead_of(np.einsum)
def _einsum(subscripts, *operands, out=None, **kwargs):
    inputs, arrow, target = subscripts.replace(" ", "").partition("->")
    if not arrow:
        raise NotImplementedError(f"np.einsum of meta tensors needs '->', got {subscripts!r}")
    sizes: dict[str | int, int] = {}  # the dims of an ellipsis are -n, …, -1
    for labels, x in zip(inputs.split(","), operands, strict=True):
        shape = np.shape(x)
        for label, n in zip(_labels(labels, len(shape)), shape, strict=True):
            if sizes.setdefault(label, n) != n and 1 not in (n, sizes[label]):
                raise ValueError(f"operands could not be broadcast: {label} is {sizes[label]} and {n}")
            sizes[label] = n if sizes[label] == 1 else sizes[label]
    result = np.einsum(subscripts, *sampled(operands), **kwargs)
    found = _labels(target, result.ndim)
    return written(from_result(result, tuple([sizes[label] for label in found])), out)


def _labels(labels: str, ndim: int) -> list[str | int]:
    first, dots, last = labels.partition("...")
    found = [*first, *range(len(first) + len(last) - ndim, 0), *last] if dots else list(first)
    if len(found) != ndim:
        raise ValueError(f"einsum: the subscripts {labels!r} are for another number of dims than {ndim}")
    return found
