"""The calls of cuBLAS that make up a product, looked up by the layouts of its arrays.

A training step repeats the same products, so what can be known of a call without the addresses is put
together once.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from .strided_gemm import Gemm, plan, strided

_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t


class _Layout(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    itemsize = property(lambda self: self.dtype.itemsize)


class Call(NamedTuple):
    """The arguments of a call, but for handle, addresses, alpha and beta.

    Attributes:
        gemm: what it computes.
        sizes: op(a), op(b), m, n, k.
        offsets: in bytes, from the addresses of a, b and c.
        a, b, c: data type, leading dimension, and in a batch the stride.
        batch: the number of products, if it is a batch.
    """

    gemm: Gemm
    function: str
    sizes: tuple
    offsets: tuple[int, ...]
    a: tuple
    b: tuple
    c: tuple
    batch: tuple[int, ...]


class Planned(NamedTuple):
    """A `strided_gemm.Plan` with its calls as cuBLAS takes them; `dtype` is that of x and y."""

    copy_x: bool
    copy_y: bool
    swapped: bool
    dtype: str
    calls: tuple[Call, ...]


@functools.lru_cache(64)
def is_planned(dtype: np.dtype) -> bool:
    """Returns whether cuBLAS multiplies arrays of this dtype."""
    return dtype.name in _DATA_TYPES


@functools.lru_cache(4096)
def result_shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of x @ y; raises ValueError if there is no such product."""
    try:
        if min(len(x), len(y)) >= 2 and x[-1] == y[-2]:
            return (*np.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])
    except ValueError:
        pass
    raise ValueError(f"a product needs (..., M, K) and (..., K, N), got shapes {x} and {y}")


@functools.lru_cache(4096)
def planned(*layouts: Any) -> Planned | None:
    """Returns the plan of a product; None if there is none, or nothing to multiply.

    Args:
        layouts: shape, strides and dtype of x, then those of y, then those of out.

    Raises:
        TypeError, ValueError: see `cublas.matmul`.
    """
    x, y, out = (_Layout(*layouts[i : i + 3]) for i in (0, 3, 6))
    shape = result_shape(x.shape, y.shape)
    allowed = (x.dtype.name, "float32") if x.itemsize == 2 else (x.dtype.name,)
    if x.dtype.name not in _DATA_TYPES or x.dtype != y.dtype or out.dtype.name not in allowed:
        raise TypeError(f"no product of {x.dtype} and {y.dtype} into {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"the product has shape {shape}, `out` has {out.shape}")
    if 0 in shape or x.shape[-1] == 0:
        return None
    if any(n > 1 and step == 0 for n, step in zip(out.shape, out.strides, strict=True)):
        raise ValueError(f"`out` of strides {out.strides} has one address for several elements")
    how = plan(strided(x), strided(y), strided(out), x.itemsize)
    return how and Planned(*how[:3], x.dtype.name, tuple([_call(gemm, x, out) for gemm in how.calls]))


def _call(gemm: Gemm, x: _Layout, out: _Layout) -> Call:
    matrices, layouts = (gemm.a, gemm.b, gemm.c), (x, x, out)
    offsets = [m.offset * layout.itemsize for m, layout in zip(matrices, layouts, strict=True)]
    operands = [(_DATA_TYPES[layout.dtype.name], m.ld) for m, layout in zip(matrices, layouts, strict=True)]
    function, batch = "cublasGemmEx_64", ()
    if gemm.batch > 1:
        function, batch = "cublasGemmStridedBatchedEx_64", (gemm.batch,)
        operands = [(*operand, m.stride) for operand, m in zip(operands, matrices, strict=True)]
    sizes = (gemm.a.transposed, gemm.b.transposed, gemm.m, gemm.n, gemm.k)
    return Call(gemm, function, sizes, tuple(offsets), *operands, batch)
