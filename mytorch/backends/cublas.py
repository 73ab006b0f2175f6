"""Products on the GPU: one function on cuBLAS, which is called through ctypes.

`cupy.matmul` isn't enough for training: with three or more dims it casts float16 to float32, computes
bfloat16 by a path for integers, and passes arrays of pointers; and CuPy refuses to call cuBLAS while a CUDA
graph is captured. Here float16 and bfloat16 keep their dtype and accumulate in float32, `beta=1` adds to the
output, and everything can be captured.

Source: cuBLAS Library, https://docs.nvidia.com/cuda/cublas/ (cublasGemmEx, cublasGemmStridedBatchedEx)
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
import warnings
from ctypes import POINTER, byref, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .device import RawArray
from .strided_gemm import Plan, plan, strided

_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_FAST_TF32 = 68, 70, 77  # cublasComputeType_t
_DEFAULT_ALGORITHM = -1
_SUM_IN_FLOAT32 = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: no partial sums in float16
_STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR", 15: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}  # fmt: skip

# The functions that end in _64 take sizes and leading dimensions beyond 2^31; cuBLAS 12 and later have them.
_HEAD = (c_void_p, c_int, c_int, c_int64, c_int64, c_int64, c_void_p)  # handle, op(a), op(b), m, n, k, alpha
_MATRIX, _MATRICES = (c_void_p, c_int, c_int64), (c_void_p, c_int, c_int64, c_int64)
_PROTOTYPES = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmEx_64": (*_HEAD, *_MATRIX, *_MATRIX, c_void_p, *_MATRIX, c_int, c_int),
    "cublasGemmStridedBatchedEx_64": (
        *_HEAD, *_MATRICES, *_MATRICES, c_void_p, *_MATRICES, c_int64, c_int, c_int
    ),
}  # fmt: skip

WORKSPACE_BYTES = 32 << 20  # what NVIDIA recommends for Hopper; earlier chips need less

_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Sets the precision of float32 products on a GPU.

    Args:
        precision: "highest" (the default): float32; "high" or "medium": TF32, which reads 10 bits of the
            mantissa and is faster on tensor cores. On the CPU it is always float32.

    Raises:
        ValueError: another value.

    >>> mytorch.set_float32_matmul_precision("highest")
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"precision must be 'highest', 'high' or 'medium', got {precision!r}")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """Returns the precision of float32 products on a GPU.

    >>> mytorch.get_float32_matmul_precision()
    'highest'
    """
    return _precision


def matmul(
    x: RawArray, y: RawArray, out: RawArray | None = None, *, alpha: float = 1.0, beta: float = 0.0
) -> RawArray:
    """Computes out = alpha x @ y + beta out for CuPy arrays of the current device, and returns `out`.

    Transposed and strided operands are read without a copy, unless BLAS has no layout for them or the copy
    saves many calls (see `strided_gemm.plan`).

    Args:
        x: (..., M, K), of float16, bfloat16, float32 or float64.
        y: (..., K, N), of the same dtype; the batch dims broadcast.
        out: (..., M, N), of any strides, in other memory than x and y; by default a new C-ordered array. It
            has the inputs' dtype, or float32 for those of half precision.
        beta: with 0 `out` isn't read, so NaN in it is overwritten; with 1 the product is added to it.

    Raises:
        TypeError: the dtypes aren't these.
        ValueError: the shapes don't fit, or elements of `out` overlap.
        RuntimeError: an array isn't on the current device, or cuBLAS fails: the message has its status.
    """
    if out is None:
        if beta:
            raise ValueError(f"beta={beta} needs an `out` to be added to")
        out = _cupy().empty(_result_shape(x.shape, y.shape), x.dtype)
    how = _planned(
        _Layout(x.shape, x.strides, x.dtype), _Layout(y.shape, y.strides, y.dtype),
        _Layout(out.shape, out.strides, out.dtype),
    )  # fmt: skip
    _check_devices(x, y, out)
    if out.size == 0:
        return out
    if x.shape[-1] == 0:  # an empty sum
        out[...] = 0 if beta == 0 else beta * out
        return out
    if how is None:
        z = matmul(x, y, alpha=alpha)
        out[...] = z if beta == 0 else z + beta * out
        return out
    blas = library()
    if blas is None:
        raise RuntimeError("cuBLAS can't be loaded")
    blas.run(how, dense(x) if how.copy_x else x, dense(y) if how.copy_y else y, out, alpha, beta)
    return out


def product(x: RawArray, y: RawArray, out: RawArray | None = None, beta: float = 0) -> RawArray:
    """Returns x @ y + beta out of CuPy arrays: by cuBLAS; for integers, or without cuBLAS, by cupy.matmul.

    Raises:
        RuntimeError: bfloat16 without cuBLAS, which cupy.matmul would treat as integers.
    """
    if _name(x.dtype) in _DATA_TYPES and library() is not None:
        return matmul(x, y, out, beta=beta)
    if x.dtype.name == "bfloat16":
        raise RuntimeError("products in bfloat16 need cuBLAS, which can't be loaded")
    z = np.matmul(x, y)
    if out is None:
        return z
    out[...] = z if beta == 0 else z + beta * out
    return out


def dense(array: RawArray) -> RawArray:
    """Returns a copy with the layout of `Strided.dense`."""
    batch = zip(array.shape[:-2], array.strides[:-2], strict=True)
    array = array[tuple(slice(1) if stride == 0 and size else slice(None) for size, stride in batch)]
    if array.strides[-2] == array.itemsize:
        return np.swapaxes(np.swapaxes(array, -1, -2).copy(order="C"), -1, -2)
    return array.copy(order="C")


@functools.lru_cache(64)
def _name(dtype: np.dtype) -> str:
    """Returns dtype.name, which NumPy puts together for each call."""
    return dtype.name


class _Layout(NamedTuple):
    """What a plan depends on."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    itemsize = property(lambda self: self.dtype.itemsize)


@functools.lru_cache(4096)  # a training step repeats the same products
def _result_shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    try:
        if min(len(x), len(y)) >= 2 and x[-1] == y[-2]:
            return (*np.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])
    except ValueError:
        pass
    raise ValueError(f"a product needs (..., M, K) and (..., K, N), got shapes {x} and {y}")


@functools.lru_cache(4096)
def _planned(x: _Layout, y: _Layout, out: _Layout) -> Plan | None:
    """Returns the plan of a product; None if there is none, or nothing to multiply.

    Raises:
        TypeError, ValueError: see `matmul`.
    """
    shape = _result_shape(x.shape, y.shape)
    allowed = (x.dtype.name, "float32") if x.itemsize == 2 else (x.dtype.name,)
    if x.dtype.name not in _DATA_TYPES or x.dtype != y.dtype or out.dtype.name not in allowed:
        raise TypeError(f"no product of {x.dtype} and {y.dtype} into {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"the product has shape {shape}, `out` has {out.shape}")
    if 0 in shape:
        return None
    if any(n > 1 and step == 0 for n, step in zip(out.shape, out.strides, strict=True)):
        raise ValueError(f"`out` of strides {out.strides} has one address for several elements")
    return None if x.shape[-1] == 0 else plan(strided(x), strided(y), strided(out), x.itemsize)


def _check_devices(x: RawArray, y: RawArray, out: RawArray) -> None:
    current = _cupy().cuda.get_device_id()
    devices = [array.device.id for array in (x, y, out)]
    if devices != [current] * 3:
        raise RuntimeError(f"the arrays are on devices {devices}, the current one is {current}")


def _cupy() -> ModuleType:
    return sys.modules["cupy"]  # loaded, since a CuPy array exists


class Library:
    """cuBLAS, with a handle for each thread and device, and a workspace for each stream.

    A captured graph keeps using the workspace, so it is never freed. Two streams can't share one, because
    their work overlaps.

    Args:
        functions: the shared library, with declared prototypes.
    """

    def __init__(self, functions: ctypes.CDLL):
        self.functions = functions
        self._mine = threading.local()
        self._free: dict[int, list[_Handle]] = {}
        self._workspaces: dict[tuple[int, int], Any] = {}

    def handle(self) -> _Handle:
        """Returns the handle of this thread for the current device, set to the current stream."""
        cuda = _cupy().cuda
        device, stream = cuda.get_device_id(), cuda.get_current_stream().ptr
        leases = self._mine.__dict__
        if device not in leases:
            leases[device] = _Lease(self, self._free.setdefault(device, []))
        handle = leases[device].handle
        if handle.stream != stream:  # setting a stream also resets the workspace
            workspace = self._workspace(device, stream)
            self.call("cublasSetStream_v2", handle.pointer, stream)
            self.call("cublasSetWorkspace_v2", handle.pointer, workspace.ptr, WORKSPACE_BYTES)
            handle.stream = stream
        return handle

    def _workspace(self, device: int, stream: int) -> Any:
        key = device, stream
        if key not in self._workspaces:  # from the default pool, even while a graph captures with another
            memory = _cupy().get_default_memory_pool().malloc(WORKSPACE_BYTES)
            self._workspaces.setdefault(key, memory)  # another thread may have been faster
        return self._workspaces[key]

    def run(self, how: Plan, x: RawArray, y: RawArray, out: RawArray, alpha: float, beta: float) -> None:
        """Makes the calls of a plan, on the current stream."""
        handle = self.handle().pointer
        a, b = (x, y) if how.swapped else (y, x)
        scalar, compute = c_float, _COMPUTE_32F if _precision == "highest" else _COMPUTE_32F_FAST_TF32
        kind = _name(a.dtype)
        if kind == "float64":
            scalar, compute = c_double, _COMPUTE_64F
        elif kind != "float32":
            compute = _COMPUTE_32F
        alpha, beta = byref(scalar(alpha)), byref(scalar(beta))
        for call in how.calls:
            operands = []
            for array, matrix in ((a, call.a), (b, call.b), (out, call.c)):
                address = array.data.ptr + matrix.offset * array.itemsize
                stride = (matrix.stride,) if call.batch > 1 else ()
                operands.append((address, _DATA_TYPES[_name(array.dtype)], matrix.ld, *stride))
            head = (handle, call.a.transposed, call.b.transposed, call.m, call.n, call.k, alpha)
            tail = (*operands[0], *operands[1], beta, *operands[2])
            if call.batch > 1:
                batched = "cublasGemmStridedBatchedEx_64"
                self.call(batched, *head, *tail, call.batch, compute, _DEFAULT_ALGORITHM, about=call)
            else:
                self.call("cublasGemmEx_64", *head, *tail, compute, _DEFAULT_ALGORITHM, about=call)

    def call(self, name: str, *args: Any, about: object = "") -> None:
        """Calls a function of cuBLAS; raises RuntimeError with its status unless that is 0."""
        status = getattr(self.functions, name)(*args)
        if status:
            raise RuntimeError(f"{name}: {_STATUS.get(status, 'unknown status')} ({status}) {about}".rstrip())


class _Handle:
    """A cuBLAS handle, and the stream that it was last set to."""

    def __init__(self, library: Library):
        self.pointer, self.stream = c_void_p(), None
        library.call("cublasCreate_v2", byref(self.pointer))
        library.call("cublasSetMathMode", self.pointer, _SUM_IN_FLOAT32)


class _Lease:
    """A handle for the life of a thread, reused by later ones: destroying one would wait for the GPU."""

    def __init__(self, library: Library, free: list[_Handle]):
        self._free = free
        try:
            self.handle = free.pop()
        except IndexError:
            self.handle = _Handle(library)

    def __del__(self):
        if hasattr(self, "handle"):  # unless creating one failed
            self._free.append(self.handle)


@functools.cache
def library() -> Library | None:
    """Returns cuBLAS; None, with a warning, if CuPy's can't be found."""
    try:
        functions = _load()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            f"cuBLAS can't be loaded ({error}): products go through cupy.matmul, which is slower in half "
            "precision and can't be captured in a CUDA graph",
            stacklevel=3,
        )
        return None
    for name, arguments in _PROTOTYPES.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = arguments, c_int
    return Library(functions)


def _load() -> ctypes.CDLL:
    """Returns CuPy's cuBLAS: once CuPy has loaded it from any path, its short name finds it.

    Raises:
        ImportError, OSError: it can't be found.
        RuntimeError: CuPy 14 can't find the CUDA runtime.
    """
    runtime = _cupy().cuda.runtime
    if runtime.is_hip:
        raise ImportError("this CuPy is for AMD's GPUs")
    libraries = importlib.import_module("cupy_backends.cuda.libs")
    if not hasattr(libraries, "cublas"):  # CuPy 14 loads it by attribute, CuPy 13 by import
        importlib.import_module("cupy_backends.cuda.libs.cublas")
    major = runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}")
