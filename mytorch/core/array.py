"""Array: one n-dimensional array type for every device.

NumPy has no GPU and CuPy has no CPU, but both implement `np.exp(x)` through the dispatch protocols of NumPy.
`Array` holds one or the other in `._array` and forwards the call.

    np.exp(Array([1.0, 2.0]))                    # runs in NumPy
    np.exp(Array([1.0, 2.0], device="cuda"))     # runs in CuPy, on the GPU

Source: NEP 13 (`__array_ufunc__`) and NEP 18 (`__array_function__`), https://numpy.org/neps/
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backends import dtypes, gpu_errors
from ..backends.device import (
    CPU,
    META,
    DeviceLike,
    array_module,
    as_device,
    device,
    device_of,
    is_on_host,
    is_raw,
    move,
    on,
    shown_device,
)
from ..backends.door import in_force
from ..backends.dtypes import DTypeLike
from ..backends.kinds import waited
from .printing import array_text
from .upcast import rounds_once


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """A NumPy or CuPy array, with a device; its methods are a Tensor's, see `ops/array_methods.py`.

    Args:
        data: an Array, a NumPy or CuPy array (kept as it is, not copied), a number, or nested lists of these.
        dtype: defaults to that of `data`; Python floats get the default dtype (float32), Python ints int64.
        device: "cpu", "cuda" or "cuda:N"; defaults to where `data` is.

    Raises:
        TypeError: `data` is not numeric.
        RuntimeError: the device does not exist.

    >>> np.exp(mytorch.Array([0.0, 1.0]))
    Array([1.00000 2.71828], dtype=float32)
    >>> mytorch.Array([1, 2]) + 1
    Array([2 3], dtype=int64)
    """

    __slots__ = ("_array", "__weakref__")
    __array_priority__ = 100

    def __init__(self, data: object, dtype: DTypeLike = None, device: DeviceLike = None):
        raw = data._array if isinstance(data, Array) else data
        if not is_raw(raw):
            raw = _from_python(raw, dtype)
        if device is not None:
            raw = move(raw, as_device(device))
        wanted = dtypes.as_dtype(raw.dtype if dtype is None else dtype)
        if raw.dtype != wanted:
            with on(device_of(raw)):
                raw = raw.astype(wanted)
        self._array = raw

    # The two protocols through which NumPy calls every `np.` function.

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        outs = kwargs.get("out", ())
        if any(_outranks(type(x)) for x in (*inputs, *outs)):
            return NotImplemented
        result = _dispatch(getattr(ufunc, method), inputs, kwargs, computes=True)
        return result if not outs else outs[0] if len(outs) == 1 else outs

    def __array_function__(self, function, types, args, kwargs):
        if any(map(_outranks, types)):
            return NotImplemented
        result = _dispatch(function, args, kwargs, self, function.__name__ in _COMPUTING)
        return kwargs["out"] if isinstance(kwargs.get("out"), Array) else result

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    shape = property(operator.attrgetter("_array.shape"))
    dtype = property(operator.attrgetter("_array.dtype"))
    ndim = property(operator.attrgetter("_array.ndim"))
    nbytes = property(operator.attrgetter("_array.nbytes"))
    T = property(lambda self: _wrap(self._array.T), doc="The Array with its dims in reverse order.")

    @property
    def device(self) -> device:
        """The device that holds the data.

        >>> mytorch.Array([1.0]).device
        device('cpu')
        """
        return shown_device(self._array)

    def numpy(self) -> np.ndarray:
        """Returns the NumPy array that holds the data; bfloat16 has ml_dtypes' dtype.

        Raises:
            TypeError: it is on a GPU; `.cpu()` copies it first.
        """
        found = device_of(self._array)
        if found is not CPU and found.base is CPU:  # of a kind that holds arrays
            return move(self._array, CPU)
        if self.device is not CPU:
            in_force().once("the elements of an array, which NumPy asks for")
            raise TypeError(f"can't convert an Array on {self.device} to NumPy; use .cpu() to copy it first")
        return self._array

    def item(self) -> int | float | bool | complex:
        """Returns the only element as a Python number; synchronizes with a GPU."""
        array = self._array
        if array.size != 1:
            raise RuntimeError(f"item(): expected one element, got an array of shape {self.shape}")
        value = array.item()
        if type(array) is not np.ndarray:
            waited()
        return value

    def tolist(self) -> Any:
        """Returns the elements as nested lists of Python numbers; a number for 0 dims.

        >>> mytorch.ones(2).data.tolist()
        [1.0, 1.0]
        """
        values = self._array.tolist()
        if type(self._array) is not np.ndarray:
            waited()
        return values

    def __len__(self) -> int:
        return len(self._array)

    def __bool__(self) -> bool:
        value = bool(self._array)
        if type(self._array) is not np.ndarray:
            waited()
        return value

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.ndim == 0 and spec else format(repr(self), spec)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __contains__(self, value) -> bool:
        return bool((self == value).any())

    def __getitem__(self, index):
        is_on_gpu = device_of(self._array).type == "cuda"
        function = gpu_errors.getitem if is_on_gpu else type(self._array).__getitem__
        return _dispatch(function, (self, index), {})

    def __setitem__(self, index, value):
        is_on_gpu = device_of(self._array).type == "cuda"
        function = gpu_errors.setitem if is_on_gpu else type(self._array).__setitem__
        _dispatch(function, (self, index, value), {})

    def __dlpack__(self, **kwargs):
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __reduce__(self):
        if self.device is META:
            return _rebuild_meta, (self.shape, self.dtype, "F" if self._array.flags.fnc else "C")
        return _rebuild, (move(self._array, CPU), str(self.device))

    def __repr__(self) -> str:
        return array_text(self)

    @property
    def data(self) -> Array:
        return self

    def detach(self) -> Array:
        """Returns the Array: it has no history."""
        return self


# What sums, or mixes with numbers: bfloat16 is computed in float32.
_COMPUTING = {
    "average", "clip", "cumprod", "cumsum", "dot", "einsum", "inner", "mean", "nanmean", "nansum",
    "norm", "outer", "prod", "std", "sum", "tensordot", "trace", "var", "vdot",
}


def _method(name):
    def method(self, *args, **kwargs):
        return _dispatch(getattr(type(self._array), name), (self, *args), kwargs, None, name in _COMPUTING)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Returns the result of NumPy's method `{name}`."
    return method


# The methods that a NumPy and a CuPy array share; those that a Tensor also has are replaced by its own.
NUMPY_METHODS = [
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "diagonal",
    "dot", "fill", "flatten", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "reshape", "round",
    "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take", "trace", "transpose", "var", "view",
]
for _name in NUMPY_METHODS:
    setattr(Array, _name, _method(_name))


def _from_python(data: object, dtype: DTypeLike) -> np.ndarray:
    """Returns a NumPy array of a number or of nested lists; Python floats get the default dtype."""
    leaf = data
    while isinstance(leaf, (list, tuple)):
        leaf = leaf[0] if leaf else 0.0
    if leaf is not data and hasattr(leaf, "dtype"):
        data = _to_numpy(data)
        dtype = functools.reduce(dtypes.promote_types, _leaf_dtypes(data)) if dtype is None else dtype
    try:
        raw = np.asarray(data)
        if raw.dtype.kind not in "biufcV":  # given the dtype, NumPy would parse text, and make None a NaN
            raise TypeError(f"can't make an array of {type(leaf).__name__}: {str(data)[:80]}")
        if dtype is not None:
            return np.asarray(data, dtypes.as_dtype(dtype))
    except ValueError as error:
        raise ValueError(f"can't make an array of this: {error}") from None
    except OverflowError as error:
        raise RuntimeError(f"can't make an array of this: {error}") from None
    if hasattr(leaf, "dtype"):
        return raw
    if raw.dtype.kind == "u":
        raise ValueError(f"can't make an array of {str(data)[:80]}: an integer is above the range of int64")
    if raw.dtype.kind in "fc":
        raw = raw.astype(dtypes.dtype_of_number(0j if raw.dtype.kind == "c" else 0.0))
    return raw


def _to_numpy(data: object) -> object:
    if isinstance(data, (list, tuple)):
        return [_to_numpy(x) for x in data]
    inner = getattr(data, "data", None)  # a Tensor's Array
    data = inner if isinstance(inner, Array) else data
    return data.cpu().numpy() if isinstance(data, Array) else data


def _leaf_dtypes(data: object) -> Iterator[np.dtype]:
    if isinstance(data, (list, tuple)):
        for x in data:
            yield from _leaf_dtypes(x)
    else:
        yield data.dtype if hasattr(data, "dtype") else dtypes.dtype_of_number(data)


def _outranks(kind: type) -> bool:
    """Returns whether it is a class that builds on Array (Tensor) and handles the call itself."""
    priority = getattr(kind, "__array_priority__", 0)  # of NumPy's own classes it is a descriptor
    return isinstance(priority, (int, float)) and priority > Array.__array_priority__


def _dispatch(function, args, kwargs, like=None, computes=False):
    """Calls `function` on the raw arrays inside `args`, on the one device that they share."""
    found: list[device] = []
    args = _unwrap(args, found)
    kwargs = {name: _unwrap(value, found) for name, value in kwargs.items()}
    if any(other is not found[0] for other in found):
        names = " and ".join(sorted(set(found)))
        raise RuntimeError(f"{function.__name__}: expected all arrays on one device, got {names}")
    if not found:  # a factory with like=array, which NumPy has taken out
        target = like.device
        function = getattr(array_module(target), function.__name__)
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
    elif (target := found[0]) is not CPU:  # CuPy takes NumPy's scalars, but not its arrays without dimensions
        args = [x[()] if is_on_host(x) else x for x in args]
    if computes and "ml_dtypes" in sys.modules and kwargs.get("dtype") is None:  # else there is no bfloat16
        function = rounds_once(function, dtypes.is_bfloat16)
    with on(target):
        return _wrap(function(*args, **kwargs))


def _unwrap(x: object, found: list[device]) -> Any:
    if isinstance(x, Array):
        found.append(x.device)
        return x._array
    if is_raw(x):
        if x.ndim:  # a 0-d array counts as a number
            found.append(device_of(x))
        return x
    if type(x) in (tuple, list):
        return type(x)(_unwrap(item, found) for item in x)
    inner = getattr(x, "data", None)  # a Tensor's, as an index or a value
    return _unwrap(inner, found) if type(inner) is Array else x


def _wrap(x: object) -> Any:
    if type(x) is np.ndarray or is_raw(x):
        array = Array.__new__(Array)
        array._array = x
        return array
    if isinstance(x, np.generic):
        return _wrap(np.asarray(x))
    if isinstance(x, tuple) and hasattr(x, "_make"):  # a named tuple, as np.linalg returns
        return x._make(map(_wrap, x))
    return type(x)(map(_wrap, x)) if type(x) in (tuple, list) else x


def _rebuild(raw: np.ndarray, device: str) -> Array:
    return Array(raw, device=device)


def _rebuild_meta(shape: tuple[int, ...], dtype: np.dtype, order: str) -> Array:
    return _wrap(array_module(META).empty(shape, dtype, order))


wrap = _wrap
