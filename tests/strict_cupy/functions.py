"""CuPy's functions: NumPy's work behind CuPy's signatures.

Every call passes through `checked`: its arguments must fit the signature of the real CuPy, arrays must be
CuPy's and on the current device, and every array that comes out is a CuPy array again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from . import graph
from .array import as_cupy, is_number, is_view, ndarray, raw, wrap
from .names import words

# Parameters that are arrays: no lists there, and as the first argument no number either …
_ARRAYS = words(
    "a b x y v m z A arr ary ar1 ar2 arr1 arr2 x1 x2 a1 a2 array prototype condition mask element val f p xp "
    "fp self weights tup arrays arys to_end to_begin"
)
_SEQUENCES = words("tup arrays arys")
# … except for these functions, which make arrays or take anything.
_TAKE_ANYTHING = words(
    "arange zeros ones empty full eye identity linspace logspace tri indices tril_indices triu_indices "
    "diag_indices mask_indices bartlett blackman hamming hanning kaiser result_type can_cast common_type "
    "isscalar ndim shape einsum unravel_index isclose allclose array_equal array_equiv meshgrid ix_ "
    "ravel_multi_index lexsort select where iscomplexobj isrealobj min_scalar_type broadcast_arrays"
)
# Here CuPy copies NumPy arrays and lists to the GPU by itself.
_FROM_HOST = {
    ("take", "indices"), ("put", "ind"), ("put", "v"), ("put", "indices"), ("put", "values"),
    ("compress", "condition"), ("extract", "condition"),
}
# These must be known on the host: an array there would need `__index__`, which CuPy's arrays don't have.
_HOST_ONLY = words(
    "axis axes shape newshape new_shape reps k n N num decimals offset axis1 axis2 source destination"
)
# What only looks at shape and strides runs on whichever device the array is.
_ANY_DEVICE = words(
    "transpose swapaxes moveaxis rollaxis squeeze expand_dims reshape ravel broadcast_to broadcast_arrays "
    "atleast_1d atleast_2d atleast_3d diagonal split array_split hsplit vsplit dsplit flip fliplr flipud "
    "rot90 real imag shape ndim result_type can_cast common_type may_share_memory shares_memory as_strided "
    "sliding_window_view iscomplexobj isrealobj isfortran tolist item tobytes array_repr array_str "
    "array2string"
)
# These wait for the GPU: for numbers, or for the size of the result.
_WAIT = words(
    "item tolist tobytes nonzero flatnonzero argwhere unique argpartition sliding_window_view array_repr "
    "array_str array2string"
)
# Here several axes are a tuple; a list or a range of them is taken for one axis.
_TUPLE_OF_AXES = words("flip squeeze sliding_window_view")
# They go through cuBLAS or cuSOLVER, which CuPy doesn't call while a stream is captured.
_BLAS = words(
    "matmul dot tensordot inner kron cholesky eigh eigvalsh inv det slogdet lstsq matrix_power matrix_rank "
    "pinv qr solve svd tensorinv tensorsolve"
)
# They join arrays: more than eight by a kernel that reads their addresses, which are copied from the CPU …
_JOINS = words("concatenate stack vstack hstack dstack column_stack block")
_MOST_JOINED, _LARGE = 8, 2 << 20  # … unless they have this many bytes on average, or several dtypes
# New arrays come in C order, except from functions that choose the order themselves.
_OWN_ORDER = words(
    "zeros_like ones_like empty_like full_like zeros ones empty full eye flatten ravel reshape einsum "
    "cholesky eigh inv lstsq pinv qr solve svd tensorinv tensorsolve"
)


def checked(name: str, signature: inspect.Signature, compute: Callable) -> Callable:
    """A function that takes what `signature` says and runs `compute` on the NumPy arrays behind CuPy's."""
    parameters = list(signature.parameters.values())
    if name in _WAIT:
        compute = _after_waiting(compute)
    if name in _BLAS:
        compute = _outside_of_captures(compute)
    known = _keywords(compute)
    joins = name in _JOINS

    @graph.taped
    def function(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"cupy.{name}: {error}") from None
        seen: list[ndarray] = []
        positional, keywords = [], {}
        for place, parameter in enumerate(parameters):
            if parameter.name not in bound.arguments:
                continue
            value = bound.arguments[parameter.name]
            _check(name, parameter, value, place == 0)
            value = _unwrap(name, parameter, value, seen)
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional.extend(value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                keywords.update(value)
            elif place == 0 or parameter.name not in (kwargs if known is None else known):
                positional.append(value)
            elif value is not None or parameter.default is not None:
                keywords[parameter.name] = value
        if joins and _joins_by_address(seen):
            graph.refuse_waiting()
        with np.errstate(all="ignore"):  # CuPy never warns
            return _wrap(name, compute(*positional, **keywords), seen)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "cupy"
    function.__signature__ = signature
    return function


def _after_waiting(compute: Callable) -> Callable:
    @functools.wraps(compute)
    def waiting(*args, **kwargs):
        graph.refuse_waiting()
        return compute(*args, **kwargs)

    return waiting


def _outside_of_captures(compute: Callable) -> Callable:
    @functools.wraps(compute)
    def calling(*args, **kwargs):
        graph.refuse_libraries()
        return compute(*args, **kwargs)

    return calling


def _joins_by_address(arrays: list[ndarray]) -> bool:
    same = len({array.dtype for array in arrays}) == 1
    return len(arrays) > _MOST_JOINED and same and sum(a.nbytes for a in arrays) < _LARGE * len(arrays)


def _keywords(compute: Callable) -> set[str] | None:
    """The names that `compute` takes by keyword; None if it doesn't say: it gets what the caller gave."""
    try:
        parameters = list(inspect.signature(compute).parameters.values())
    except ValueError:  # compiled, in older NumPys
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _check(name: str, parameter: inspect.Parameter, value: Any, is_first: bool) -> None:
    if parameter.name == "subok" and parameter.default is None and value is not None:
        raise TypeError(f"cupy.{name}: subok is not supported by CuPy")
    if name in _TUPLE_OF_AXES and parameter.name == "axis" and isinstance(value, (list, range)):
        raise TypeError(f"cupy.{name}: '{type(value).__name__}' object cannot be interpreted as an integer")
    if name in _TAKE_ANYTHING or parameter.name not in _ARRAYS or (name, parameter.name) in _FROM_HOST:
        return
    wants_sequence = parameter.name in _SEQUENCES
    items = value if wants_sequence or parameter.kind is parameter.VAR_POSITIONAL else (value,)
    for item in items:
        if isinstance(item, (list, tuple)) or ((is_first or wants_sequence) and is_number(item)):
            raise TypeError(f"cupy.{name}: `{parameter.name}` must be a cupy.ndarray, got {type(item)}")


def _unwrap(name: str, parameter: inspect.Parameter, value: Any, seen: list[ndarray]) -> Any:
    """`value` with NumPy arrays for CuPy's, also inside lists and dicts; CuPy's go into `seen`."""
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrap(name, parameter, item, seen) for item in value)
    if isinstance(value, dict):
        return {key: _unwrap(name, parameter, item, seen) for key, item in value.items()}
    array = as_cupy(value)
    if array is None:
        if isinstance(value, np.ndarray) and (name, parameter.name) not in _FROM_HOST:
            raise TypeError(f"cupy.{name}: Unsupported type {type(value)} for `{parameter.name}`")
        return value
    if parameter.name in _HOST_ONLY:
        raise TypeError(f"cupy.{name}: `{parameter.name}` must be a number, got {type(value)}")
    seen.append(array)
    return array._numpy if name in _ANY_DEVICE else raw(array)


def _wrap(name: str, result: Any, seen: list[ndarray]) -> Any:
    """CuPy arrays of all arrays and NumPy scalars in `result`: an argument, a view of one, or a new array."""
    if isinstance(result, (list, tuple)):
        items = (_wrap(name, item, seen) for item in result)
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    for array in seen:
        if result is array._numpy:
            return array
    for array in seen:
        if is_view(result, array._numpy):
            return wrap(result, array)
    return wrap(result if name in _OWN_ORDER else np.asarray(result, order="C"))
