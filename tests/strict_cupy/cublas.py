"""A cuBLAS that computes with NumPy, so that calls of it through ctypes run without a GPU.

Its functions are C function pointers with the prototypes of NVIDIA's documentation: what they get has gone
through C types, as it would on the way to the library. They refuse what cuBLAS refuses, with its status.

Source: https://docs.nvidia.com/cuda/cublas/
"""

from __future__ import annotations

import ctypes
import functools
import traceback
import types
from collections.abc import Callable
from ctypes import POINTER, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import ml_dtypes
import numpy as np

from . import device, graph
from .array import at_address

SUCCESS, NOT_INITIALIZED, INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED = 0, 1, 7, 14, 15
_GEMM = (
    c_void_p, c_int, c_int, c_int64, c_int64, c_int64,  # handle, transa, transb, m, n, k
    c_void_p, c_void_p, c_int, c_int64,  # alpha, A, Atype, lda
    c_void_p, c_int, c_int64,  # B, Btype, ldb
    c_void_p, c_void_p, c_int, c_int64,  # beta, C, Ctype, ldc
    c_int, c_int,  # computeType, algo
)
_STRIDED_GEMM = (
    c_void_p, c_int, c_int, c_int64, c_int64, c_int64,
    c_void_p, c_void_p, c_int, c_int64, c_int64,  # … lda, strideA
    c_void_p, c_int, c_int64, c_int64,
    c_void_p, c_void_p, c_int, c_int64, c_int64,
    c_int64, c_int, c_int,  # batchCount, computeType, algo
)
PROTOTYPES = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmEx_64": _GEMM,
    "cublasGemmStridedBatchedEx_64": _STRIDED_GEMM,
}
_DTYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
# (compute type, type of A and B, type of C) -> type of alpha, of beta and of the sums
_SUPPORTED = {
    (68, 0, 0): c_float, (68, 2, 2): c_float, (68, 2, 0): c_float, (68, 14, 14): c_float,
    (68, 14, 0): c_float, (77, 0, 0): c_float, (70, 1, 1): c_double,
}


class Handle:
    """What a cuBLAS handle remembers."""

    def __init__(self):
        self.device = device.get_device()
        self.stream = self.workspace = self.math_mode = None


def reporting(method: Callable) -> Callable:
    """A C function can't raise: it prints what was wrong and returns a status."""

    def function(*args: Any) -> int:
        try:
            return method(*args)
        except Exception:
            traceback.print_exc()
            return INTERNAL_ERROR

    return function


class Cublas:
    """The functions, as attributes; `calls` has the name and arguments of every GEMM."""

    def __init__(self):
        self.calls: list[tuple] = []
        self.handles: dict[int, Handle] = {}
        self.status = SUCCESS  # what every GEMM returns instead of working, if it is something else
        for name, arguments in PROTOTYPES.items():
            method = getattr(self, name.removeprefix("cublas").removesuffix("_v2").removesuffix("_64"))
            setattr(self, name, ctypes.CFUNCTYPE(c_int, *arguments)(reporting(method)))

    def Create(self, handle: Any) -> int:
        number = 256 * (len(self.handles) + 1)
        self.handles[number] = Handle()
        handle[0] = number
        return SUCCESS

    def SetMathMode(self, handle: int, mode: int) -> int:
        self.handles[handle].math_mode = mode
        return SUCCESS

    def SetStream(self, handle: int, stream: int | None) -> int:
        self.handles[handle].stream, self.handles[handle].workspace = stream or 0, None
        return SUCCESS

    def SetWorkspace(self, handle: int, pointer: int, size: int) -> int:
        self.handles[handle].workspace = (pointer, size)
        return SUCCESS

    def GemmEx(self, handle, transa, transb, m, n, k, alpha, *rest) -> int:
        a, (beta, *c), (compute, _) = rest[:6], rest[6:10], rest[10:]
        operands = [(*a[:3], 0), (*a[3:], 0), (*c, 0)]
        return self._gemm("GemmEx", handle, (transa, transb), (m, n, k), alpha, beta, operands, 1, compute)

    def GemmStridedBatchedEx(self, handle, transa, transb, m, n, k, alpha, *rest) -> int:
        operands = [rest[:4], rest[4:8], rest[9:13]]
        batch, compute, _ = rest[13:]
        name = "GemmStridedBatchedEx"
        return self._gemm(name, handle, (transa, transb), (m, n, k), alpha, rest[8], operands, batch, compute)

    def _gemm(self, name, handle, trans, sizes, alpha, beta, operands, batch, compute) -> int:
        self.calls.append((name, trans, sizes, operands, batch, compute))
        if self.status:
            return self.status
        known = self.handles.get(handle)
        stream = device.get_current_stream().ptr
        if known is None or known.device != device.get_device() or known.workspace is None:
            return NOT_INITIALIZED
        assert known.stream == stream, f"cuBLAS works on stream {known.stream}, the current one is {stream}"
        (m, n, k), (a, b, c) = sizes, operands
        scalar = _SUPPORTED.get((compute, a[1], c[1]))
        if scalar is None or a[1] != b[1]:
            return NOT_SUPPORTED
        rows = (k if trans[0] else m, n if trans[1] else k, m)
        if min(m, n, k, batch) < 1 or any(x[2] < count for x, count in zip(operands, rows, strict=True)):
            return INVALID_VALUE
        factors = [ctypes.cast(x, POINTER(scalar))[0] for x in (alpha, beta)]
        for i in range(batch):
            matrices = [matrix(x, i) for x in operands]
            work = functools.partial(multiply, trans, sizes, factors, *matrices, scalar)
            graph.note(work, _at(matrices[2], (m, n)))
        return SUCCESS


def matrix(operand: tuple, index: int) -> types.SimpleNamespace:
    """The operand of one product of a batch: (pointer, type, ld, stride)."""
    pointer, kind, ld, stride = operand
    dtype = np.dtype(_DTYPES[kind])
    return types.SimpleNamespace(address=pointer + index * stride * dtype.itemsize, dtype=dtype, ld=ld)


def multiply(trans: Any, sizes: Any, factors: Any, a: Any, b: Any, c: Any, scalar: Any) -> None:
    """C = alpha op(A) op(B) + beta C for column-major matrices, summed in the type of the scalars."""
    (m, n, k), (alpha, beta) = sizes, factors
    left = _at(a, (k, m)).T if trans[0] else _at(a, (m, k))
    right = _at(b, (n, k)).T if trans[1] else _at(b, (k, n))
    out = _at(c, (m, n))
    with np.errstate(all="ignore"):
        z = alpha * (left.astype(scalar) @ right.astype(scalar))
        out[...] = z if beta == 0 else z + beta * out.astype(scalar)


def _at(x: Any, shape: tuple[int, int]) -> np.ndarray:
    return at_address(x.address, shape, (x.dtype.itemsize, x.ld * x.dtype.itemsize), x.dtype, None)
