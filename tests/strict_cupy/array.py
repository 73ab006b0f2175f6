"""The array: CuPy's ndarray with a NumPy array for memory, and CuPy's rules about what may touch it.

It wraps a NumPy array rather than inheriting from it, so whatever isn't handed over on purpose fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mytorch.core.graph import owner_of

from . import device, graph, indexing, memory
from .names import NAMES

_DTYPES = frozenset("?bhilqBHILQefdFDE")  # E is ml_dtypes' bfloat16, which CuPy takes from version 14 on


def wrap(array: Any, base: ndarray | None = None) -> ndarray:
    """A CuPy array of this NumPy array or scalar: a view of `base`, or a new one on the current device.

    Raises:
        ValueError: CuPy has no such dtype (strings, objects, float128, …).
    """
    array = np.asarray(array)
    if array.dtype.char not in _DTYPES or not array.dtype.isnative:
        raise ValueError(f"Unsupported dtype {array.dtype}")
    self = object.__new__(ndarray)
    self._numpy = array
    self.base = base if base is None or base.base is None else base.base
    self._device = device.get_device() if base is None else base._device
    self._block = memory.allocate(array.nbytes) if base is None else None
    return self


def is_view(result: np.ndarray, array: np.ndarray) -> bool:
    """Whether two of NumPy's arrays share memory. Those of size 0 share none, but have the same owner."""
    return np.may_share_memory(result, array) or (not result.size and owner_of(result) is owner_of(array))


def raw(x: ndarray) -> np.ndarray:
    """The memory of `x` for a kernel on the current device.

    Raises:
        ValueError: `x` is on another device.
    """
    current = device.get_device()
    if x._device != current:
        raise ValueError(
            f"the array is on device {x._device} and the current device is {current}: there is no peer access"
        )
    return x._numpy


def is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex, np.generic))


def as_cupy(x: Any) -> ndarray | None:
    """`x` if it is a CuPy array, a view of it if it is GPU memory of another library; None if neither."""
    if isinstance(x, ndarray):
        return x
    if isinstance(x, type):
        return None
    if hasattr(x, "__cuda_array_interface__"):
        facts = x.__cuda_array_interface__
        return wrap(at_address(facts["data"][0], facts["shape"], facts.get("strides"), facts["typestr"], x))
    return x.__cupy_get_ndarray__() if hasattr(x, "__cupy_get_ndarray__") else None


def operand(x: Any) -> Any:
    """What a kernel computes with: the memory of a CuPy array, or a number.

    Raises:
        TypeError: `x` is neither, for example a NumPy array or a list.
    """
    array = as_cupy(x)
    if array is not None:
        return raw(array)
    if not is_number(x):
        raise TypeError(f"Unsupported type {type(x)}")
    return x


def at_address(address: int, shape: Any, strides: Any, dtype: Any, owner: Any) -> np.ndarray:
    """A NumPy array over memory at an address, which `owner` keeps alive."""
    dtype = np.dtype(dtype)
    if 0 in shape:
        return np.empty(shape, dtype)

    class Memory:
        typestr = f"<u{dtype.itemsize}" if dtype.char == "E" else dtype.str  # the protocol has no bfloat16
        facts = {"shape": tuple(shape), "strides": strides, "typestr": typestr, "version": 3}
        __array_interface__ = {**facts, "data": (address, False)}
        keep = owner

    return np.asarray(Memory()).view(dtype)


class Flags:
    """The three layout facts that CuPy knows, as attributes or by NumPy's names; there is no `writeable`."""

    def __init__(self, array: ndarray):
        self.c_contiguous = array._numpy.flags.c_contiguous
        self.f_contiguous = array._numpy.flags.f_contiguous
        self.owndata = array.base is None
        self.fnc = self.f_contiguous and not self.c_contiguous
        self.forc = self.f_contiguous or self.c_contiguous

    def __getitem__(self, name):
        if name not in ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA"):
            raise KeyError(f"{name} is not defined for cupy.ndarray.flags")
        return getattr(self, name.lower())


class ndarray:
    """`cupy.ndarray`. Operators and most methods are added in methods.py.

    Args:
        shape: lengths of the axes.
        dtype: element type.
        memptr: where the memory is; new memory if None.
        strides: in bytes; needs `memptr`.
        order: "C" or "F".
    """

    __slots__ = ("_numpy", "_device", "_block", "base", "__weakref__")
    __module__ = "cupy"
    __array_priority__ = 100
    __hash__ = None

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if memptr is None:
            made = wrap(np.empty(shape, dtype, order))
        else:
            made = wrap(at_address(memptr.ptr, shape, strides, dtype, memptr.mem))
            made._device = memptr.device_id
        for slot in ("_numpy", "_device", "_block", "base"):
            setattr(self, slot, getattr(made, slot))

    dtype = property(lambda self: self._numpy.dtype)
    strides = property(lambda self: self._numpy.strides)
    ndim = property(lambda self: self._numpy.ndim)
    size = property(lambda self: self._numpy.size)
    itemsize = property(lambda self: self._numpy.itemsize)
    nbytes = property(lambda self: self._numpy.nbytes)
    flags = property(Flags)
    device = property(lambda self: device.Device(self._device))
    T = property(lambda self: self if self.ndim < 2 else wrap(self._numpy.T, self))

    @property
    def shape(self):
        return self._numpy.shape

    @shape.setter
    def shape(self, shape):
        view = self._numpy.view()
        view.shape = shape
        self._numpy = view

    @property
    def real(self):
        return wrap(self._numpy.real, self) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value):
        self.real[...] = value

    @property
    def imag(self):
        if self.dtype.kind == "c":
            return wrap(self._numpy.imag, self)
        return wrap(np.zeros(self.shape, self.dtype))

    @imag.setter
    def imag(self, value):
        self.imag[...] = value

    @property
    def data(self):
        address = self._numpy.__array_interface__["data"][0]
        return device.MemoryPointer(device.UnownedMemory(address, self.nbytes, self._numpy, self._device))

    # Doors to other libraries: NumPy gets nothing by itself, GPU libraries get the address.

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed: call `.get()` on the array")

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.data.ptr if self.size else 0, False),
            "stream": 1,
            "version": 3,
        }

    def __dlpack_device__(self):
        return 2, self._device  # 2 is CUDA

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device in (None, self.__dlpack_device__()):
            return _Capsule(self)
        if dl_device != (1, 0):
            raise BufferError(f"can't export an array on {self.device} to DLPack device {dl_device}")
        if copy is False:
            raise ValueError("GPU memory can't be exported to the CPU without a copy")
        return self.get().__dlpack__()

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        outs = kwargs.get("out", ())
        if "out" in kwargs:
            if len(outs) != 1:
                raise ValueError("the 'out' parameter must have exactly one array")
            kwargs["out"] = outs[0]
        try:
            function = getattr(_cupy(), ufunc.__name__)
            function = function if method == "__call__" else getattr(function, method)
        except AttributeError:
            return NotImplemented
        known = (ndarray, np.ndarray)  # a NumPy array goes on, to be refused with a better message
        if not all(isinstance(x, known) or is_number(x) or as_cupy(x) is not None for x in (*inputs, *outs)):
            return NotImplemented
        if ufunc in COMPARISONS:
            inputs = tuple(x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
        return function(*inputs, **kwargs)

    def __array_function__(self, function, types, args, kwargs):
        owner = _cupy()
        try:
            for name in (*function.__module__.split(".")[1:], function.__name__):
                owner = getattr(owner, name)
        except AttributeError:
            return NotImplemented
        if owner is function or not all(issubclass(t, (ndarray, np.ndarray)) for t in types):
            return NotImplemented
        return owner(*args, **kwargs)

    # Reading and writing elements.

    @graph.taped
    def __getitem__(self, key):
        key, is_copy = indexing.resolve(self, key)
        if is_copy:
            if any(isinstance(item, np.ndarray) and item.dtype == bool for item in key):
                graph.refuse_waiting()  # how many there are is not known before
            return wrap(np.array(raw(self)[key], order="C"))
        return wrap(self._numpy[key], self)

    @graph.taped
    def __setitem__(self, key, value):
        indexing.assign(self, key, value)

    def __len__(self):
        return len(self._numpy)

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getattr__(self, name):
        if name in NAMES["cupy.ndarray"]:
            raise NotImplementedError(f"the strict CuPy has no ndarray.{name} yet: add it in methods.py")
        raise AttributeError(f"cupy.ndarray has no attribute {name!r}")


class _Capsule:
    """What `__dlpack__` hands over; `cupy.from_dlpack` opens it."""

    def __init__(self, array: ndarray):
        self.array = array


COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)


def _cupy():
    from .modules import cupy  # it needs this module first

    return cupy
