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
from typing import Any

import numpy as np

from .cublas_calls import Planned, is_planned, planned, result_shape
from .device import GPU, RawArray

_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_FAST_TF32 = 68, 70, 77  # cublasComputeType_t
_DEFAULT_ALGORITHM = -1
_SUM_IN_FLOAT32 = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: no partial sums in float16
_STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR", 15: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}

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
}

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
        out = _cupy().empty(result_shape(x.shape, y.shape), x.dtype)
    how = planned(
        x.shape, x.strides, x.dtype, y.shape, y.strides, y.dtype, out.shape, out.strides, out.dtype
    )
    device = _common_device(x, y, out)
    if how is not None:
        blas = library()
        if blas is None:
            raise RuntimeError("cuBLAS can't be loaded")
        x, y = dense(x) if how.copy_x else x, dense(y) if how.copy_y else y
        blas.run(how, device, *((x, y) if how.swapped else (y, x)), out, alpha, beta)
    elif x.shape[-1] == 0:  # an empty sum
        out[...] = 0 if beta == 0 else beta * out
    elif out.size:
        z = matmul(x, y, alpha=alpha)
        out[...] = z if beta == 0 else z + beta * out
    return out


def product(x: RawArray, y: RawArray, out: RawArray | None = None, beta: float = 0) -> RawArray:
    """Returns x @ y + beta out of CuPy arrays: by cuBLAS; for integers, or without cuBLAS, by cupy.matmul.

    Raises:
        RuntimeError: bfloat16 without cuBLAS, which cupy.matmul would treat as integers.
    """
    if is_planned(x.dtype) and library() is not None:
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


def _common_device(x: RawArray, y: RawArray, out: RawArray) -> int:
    """Returns the current device; raises unless the arrays are on it."""
    current = _cupy().cuda.get_device_id()
    if not x.device.id == y.device.id == out.device.id == current:
        devices = [array.device.id for array in (x, y, out)]
        raise RuntimeError(f"the arrays are on devices {devices}, the current one is {current}")
    return current


def _cupy() -> ModuleType:
    return sys.modules["cupy"]  # loaded, since a CuPy array exists


@functools.lru_cache(64)
def _in_memory(kind: type, value: float) -> Any:
    """Returns the address of a number, which cuBLAS reads."""
    return byref(kind(value))


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

    def handle(self, device: int) -> _Handle:
        """Returns the handle of this thread for the current device, set to the current stream."""
        stream = _cupy().cuda.get_current_stream().ptr
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

    def run(
        self, how: Planned, device: int, a: RawArray, b: RawArray, c: RawArray, alpha: float, beta: float
    ) -> None:
        """Makes the calls of a plan, on the current device and stream."""
        handle = self.handle(device).pointer
        scalar, compute = c_float, _COMPUTE_32F
        if how.dtype == "float64":
            scalar, compute = c_double, _COMPUTE_64F
        elif how.dtype == "float32" and _precision != "highest":
            compute = _COMPUTE_32F_FAST_TF32
        alpha, beta = _in_memory(scalar, alpha), _in_memory(scalar, beta)
        at_a, at_b, at_c = a.data.ptr, b.data.ptr, c.data.ptr
        for call in how.calls:
            to_a, to_b, to_c = call.offsets
            self.call(
                call.function, handle, *call.sizes, alpha, at_a + to_a, *call.a, at_b + to_b, *call.b,
                beta, at_c + to_c, *call.c, *call.batch, compute, _DEFAULT_ALGORITHM, about=call.gemm,
            )

    def call(self, name: str, *args: object, about: object = "") -> None:
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


GPU.product = GPU.add_product = product
