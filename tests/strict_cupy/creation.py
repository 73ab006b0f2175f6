"""Functions on CuPy arrays themselves: conversion from and to the host, copies between devices, DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import device, graph
from .array import _Capsule, as_cupy, is_number, ndarray, raw, wrap


@graph.taped
def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    if subok:
        raise NotImplementedError("cupy.array has no subok")
    source = as_cupy(obj)
    if source is None:
        source = _from_host(obj, dtype, order)
    here = source._device == device.get_device()
    if copy and obj is source or not here:
        made = wrap(np.array(source._numpy, dtype, order=order))
    else:
        made = source._numpy.astype(dtype or source.dtype, order=order or "K", copy=False)
        made = source if made is source._numpy else wrap(made)
    return made if made.ndim >= ndmin else made.reshape((1,) * (ndmin - made.ndim) + made.shape)


def _from_host(obj: Any, dtype: Any, order: str | None) -> ndarray:
    """A new array of a NumPy array, a number or nested lists of them; or of nested lists of CuPy arrays."""
    graph.refuse_waiting()
    leaves = _leaves(obj)
    if any(isinstance(leaf, ndarray) for leaf in leaves):
        if not all(isinstance(leaf, ndarray) for leaf in leaves):
            raise TypeError("a list of CuPy arrays can't hold anything else")
        return wrap(np.array(_unwrap(obj), dtype, order=order))
    return wrap(np.array(obj, dtype, order=order))


def _leaves(obj: Any) -> list:
    return [leaf for item in obj for leaf in _leaves(item)] if isinstance(obj, (list, tuple)) else [obj]


def _unwrap(obj: Any) -> Any:
    return [_unwrap(item) for item in obj] if isinstance(obj, (list, tuple)) else raw(obj)


def asarray(a, dtype=None, order=None, *, blocking=False):
    return array(a, dtype, copy=False, order=order)


def ascontiguousarray(a, dtype=None):
    return _contiguous(a, dtype, "C")


def asfortranarray(a, dtype=None):
    return _contiguous(a, dtype, "F")


def _contiguous(a: Any, dtype: Any, order: str) -> ndarray:
    if not isinstance(a, ndarray):
        raise TypeError(f"expected cupy.ndarray, got {type(a)}")
    if a.ndim == 0:
        a = a.reshape(1)
    return a.astype(dtype or a.dtype, order=order, copy=False)


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    source = as_cupy(a)
    if source is not None:
        return source.get(order=order, out=out)
    result = np.asarray(a, order=order)
    if out is None:
        return result
    out[...] = result
    return out


def from_dlpack(array, *, device=None, copy=None):
    if device is not None:
        raise NotImplementedError("from_dlpack() does not support device yet.")
    capsule = array
    if hasattr(array, "__dlpack_device__"):
        if array.__dlpack_device__()[0] == 1:
            raise TypeError("CPU arrays can't be imported directly: use `cupy.array(numpy.from_dlpack(x))`")
        capsule = array.__dlpack__(stream=1, max_version=(1, 0), copy=copy)
    if not isinstance(capsule, _Capsule):
        raise TypeError(f"the strict CuPy imports only its own arrays by DLPack, got {type(capsule)}")
    return wrap(capsule.array._numpy, capsule.array)


@graph.taped
def copyto(dst, src, casting="same_kind", where=None):
    if not isinstance(dst, ndarray):
        raise TypeError(f"cupy.copyto: `dst` must be a cupy.ndarray, got {type(dst)}")
    source = as_cupy(src)
    if source is None and not is_number(src):
        if np.size(src) != 1:
            raise ValueError("cupy.copyto: a NumPy array must have one element")
        src = np.asarray(src).item()
    mask = True if where is None else raw(where)
    np.copyto(dst._numpy, src if source is None else source._numpy, casting, mask)


def copy(a, order="K"):
    if not isinstance(a, ndarray):
        raise TypeError(f"cupy.copy: `a` must be a cupy.ndarray, got {type(a)}")
    return a.copy(order)


def get_array_module(*args):
    from .modules import cupy

    return cupy if any(isinstance(arg, ndarray) for arg in args) else np


def size(a, axis=None):
    return a.size if axis is None else a.shape[axis]


def fuse(*args, **kwargs):
    """Kernels need no fusing here: the function as it is, also as `@fuse(kernel_name=…)`."""
    return args[0] if args and callable(args[0]) else lambda function: function


def memoize(for_each_device=False):
    return lambda function: function


class Kernel:
    """RawKernel, ReductionKernel, …: can be made anywhere, but not launched without a GPU."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        raise NotImplementedError("the strict CuPy stand-in can't run CUDA kernels")


def scatter_add(a, slices, value):
    a.scatter_add(slices, value)


def scatter_max(a, slices, value):
    a.scatter_max(slices, value)


def scatter_min(a, slices, value):
    a.scatter_min(slices, value)
