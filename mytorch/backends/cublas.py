"""Products on the GPU: one function over cuBLAS, which is called through ctypes.

`cupy.matmul` isn't enough for training: with three or more dims it casts float16 to float32, sends bfloat16
through a path for integers and hands over arrays of pointers; and CuPy refuses to call cuBLAS while a CUDA
graph is captured. Here float16 and bfloat16 stay what they are, with sums in float32, `beta=1` adds to what
is there, and everything can be captured.

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
from typing import Any

import numpy as np

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
    """How exact float32 products on a GPU are.

    Args:
        precision: "highest" (the default): float32; "high" or "medium": TF32, which reads 10 bits of the
            mantissa and is faster on tensor cores. On the CPU it is always float32.

    Raises:
        ValueError: another word.
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"precision must be 'highest', 'high' or 'medium', got {precision!r}")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given."""
    return _precision


def matmul(x: Any, y: Any, out: Any = None, *, alpha: float = 1.0, beta: float = 0.0) -> Any:
    """out = alpha x @ y + beta out, for CuPy arrays of the current device; returns `out`.

    Transposed and strided operands are read where they are. Only what BLAS has no layout for is copied, and
    what would need many calls otherwise (see `strided_gemm.plan`).

    Args:
        x: (..., M, K), of float16, bfloat16, float32 or float64.
        y: (..., K, N), of the same dtype; the batch dims broadcast.
        out: (..., M, N), of any strides, in other memory than x and y; by default a new C-ordered array. It
            has the inputs' dtype, or float32 for those of half precision.
        beta: with 0 what is in `out` doesn't count, not even NaN; with 1 the product is added to it.

    Raises:
        TypeError: the dtypes aren't these.
        ValueError: the shapes don't fit, or `out` has one address for several elements.
        RuntimeError: an array isn't on the current device, or cuBLAS fails: the message has its status.
    """
    shape = _result_shape(x, y)
    if out is None:
        if beta:
            raise ValueError(f"beta={beta} needs an `out` to be added to")
        out = _cupy().empty(shape, x.dtype)
    _check(x, y, out, shape)
    if out.size == 0:
        return out
    if x.shape[-1] == 0:  # an empty sum
        out[...] = 0 if beta == 0 else beta * out
        return out
    how = plan(strided(x), strided(y), strided(out), x.itemsize)
    if how is None:
        z = matmul(x, y, alpha=alpha)
        out[...] = z if beta == 0 else z + beta * out
        return out
    blas = library()
    if blas is None:
        raise RuntimeError("cuBLAS can't be loaded")
    blas.run(how, dense(x) if how.copy_x else x, dense(y) if how.copy_y else y, out, alpha, beta)
    return out


def product(x: Any, y: Any, out: Any = None, beta: float = 0) -> Any:
    """x @ y + beta out of CuPy arrays: through cuBLAS; integers, and all without it, through cupy.matmul.

    Raises:
        RuntimeError: bfloat16 without cuBLAS: cupy.matmul would take it for integers.
    """
    if x.dtype.name in _DATA_TYPES and library() is not None:
        return matmul(x, y, out, beta=beta)
    if x.dtype.name == "bfloat16":
        raise RuntimeError("products in bfloat16 need cuBLAS, which can't be loaded")
    z = np.matmul(x, y)
    if out is None:
        return z
    out[...] = z if beta == 0 else z + beta * out
    return out


def dense(array: Any) -> Any:
    """A copy whose layout is `Strided.dense`."""
    batch = zip(array.shape[:-2], array.strides[:-2], strict=True)
    array = array[tuple(slice(1) if stride == 0 and size else slice(None) for size, stride in batch)]
    if array.strides[-2] == array.itemsize:
        return np.swapaxes(np.swapaxes(array, -1, -2).copy(order="C"), -1, -2)
    return array.copy(order="C")


def _result_shape(x: Any, y: Any) -> tuple[int, ...]:
    try:
        if min(x.ndim, y.ndim) >= 2 and x.shape[-1] == y.shape[-2]:
            return (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    except ValueError:
        pass
    raise ValueError(f"a product needs (..., M, K) and (..., K, N), got shapes {x.shape} and {y.shape}")


def _check(x: Any, y: Any, out: Any, shape: tuple[int, ...]) -> None:
    allowed = (x.dtype.name, "float32") if x.itemsize == 2 else (x.dtype.name,)
    if x.dtype.name not in _DATA_TYPES or x.dtype != y.dtype or out.dtype.name not in allowed:
        raise TypeError(f"no product of {x.dtype} and {y.dtype} into {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"the product has shape {shape}, `out` has {out.shape}")
    if out.size and any(n > 1 and step == 0 for n, step in zip(out.shape, out.strides, strict=True)):
        raise ValueError(f"`out` of strides {out.strides} has one address for several elements")
    here = _cupy().cuda.get_device_id()
    places = [array.device.id for array in (x, y, out)]
    if places != [here] * 3:
        raise RuntimeError(f"the arrays are on devices {places}, the current one is {here}")


def _cupy() -> Any:
    return sys.modules["cupy"]  # there is a CuPy array, so it is loaded


class Library:
    """cuBLAS, with a handle for each thread and device, and memory of its own for each stream to work in.

    A captured graph goes on to use the workspace, so it is never freed. Two streams can't share one: what
    they do overlaps.

    Args:
        functions: the shared library, its prototypes declared.
    """

    def __init__(self, functions: Any):
        self.functions = functions
        self._mine = threading.local()
        self._free: dict[int, list[_Handle]] = {}
        self._workspaces: dict[tuple[int, int], Any] = {}

    def handle(self) -> _Handle:
        """The handle of this thread for the current device, set to work on the current stream."""
        cuda = _cupy().cuda
        device, stream = cuda.get_device_id(), cuda.get_current_stream().ptr
        leases = self._mine.__dict__
        if device not in leases:
            leases[device] = _Lease(self, self._free.setdefault(device, []))
        handle = leases[device].handle
        if handle.stream != stream:  # a new stream also takes the workspace away
            workspace = self._workspace(device, stream)
            self.call("cublasSetStream_v2", handle.pointer, stream)
            self.call("cublasSetWorkspace_v2", handle.pointer, workspace.ptr, WORKSPACE_BYTES)
            handle.stream = stream
        return handle

    def _workspace(self, device: int, stream: int) -> Any:
        key = device, stream
        if key not in self._workspaces:  # from the default pool, also while a graph captures into its own
            memory = _cupy().get_default_memory_pool().malloc(WORKSPACE_BYTES)
            self._workspaces.setdefault(key, memory)  # another thread may have been faster
        return self._workspaces[key]

    def run(self, how: Plan, x: Any, y: Any, out: Any, alpha: float, beta: float) -> None:
        """Make the calls of a plan, on the current stream."""
        handle = self.handle().pointer
        a, b = (x, y) if how.swapped else (y, x)
        scalar, compute = c_float, _COMPUTE_32F if _precision == "highest" else _COMPUTE_32F_FAST_TF32
        if a.dtype.name == "float64":
            scalar, compute = c_double, _COMPUTE_64F
        elif a.dtype.name != "float32":
            compute = _COMPUTE_32F
        alpha, beta = byref(scalar(alpha)), byref(scalar(beta))
        for call in how.calls:
            operands = []
            for array, place in ((a, call.a), (b, call.b), (out, call.c)):
                address = array.data.ptr + place.offset * array.itemsize
                step = (place.stride,) if call.batch > 1 else ()
                operands.append((address, _DATA_TYPES[array.dtype.name], place.ld, *step))
            head = (handle, call.a.transposed, call.b.transposed, call.m, call.n, call.k, alpha)
            tail = (*operands[0], *operands[1], beta, *operands[2])
            if call.batch > 1:
                batched = "cublasGemmStridedBatchedEx_64"
                self.call(batched, *head, *tail, call.batch, compute, _DEFAULT_ALGORITHM, about=call)
            else:
                self.call("cublasGemmEx_64", *head, *tail, compute, _DEFAULT_ALGORITHM, about=call)

    def call(self, name: str, *args: Any, about: Any = "") -> None:
        """Call a function of cuBLAS; RuntimeError with its status if that isn't 0."""
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
    """A handle while a thread lives; the next thread gets it. Destroying one would wait for the GPU."""

    def __init__(self, library: Library, free: list[_Handle]):
        self._free = free
        try:
            self.handle = free.pop()
        except IndexError:
            self.handle = _Handle(library)

    def __del__(self):
        if hasattr(self, "handle"):  # cuBLAS may have refused to make one
            self._free.append(self.handle)


@functools.cache
def library() -> Library | None:
    """cuBLAS; None, with a warning, where CuPy's own can't be found."""
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


def _load() -> Any:
    """CuPy's cuBLAS: once CuPy has loaded it, from wherever it is, the linker knows it by its short name.

    Raises:
        ImportError, OSError: it can't be found.
        RuntimeError: CuPy 14 can't find the CUDA runtime.
    """
    runtime = _cupy().cuda.runtime
    if runtime.is_hip:
        raise ImportError("this CuPy is for AMD's GPUs")
    libraries = importlib.import_module("cupy_backends.cuda.libs")
    if not hasattr(libraries, "cublas"):  # CuPy 14 loads it when it is asked, CuPy 13 has to be told
        importlib.import_module("cupy_backends.cuda.libs.cublas")
    major = runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}")
