"""What the chip can do at best, measured: bandwidth of copies and triads, and the rate of matrix products."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import triton
import triton.language as tl

from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import Size
from mytorch.backends import cublas
from mytorch.backends.device import cupy
from mytorch.nn.fused_ops.triton.launch import launch
from mytorch.nn.fused_ops.triton.tune import tuned
from tests.triton import harness

BANDWIDTHS = ("copy", "triad")
RATES = {"float32": "float32", "tf32": "float32", "float16": "float16"}  # and bfloat16


@tuned([{"BLOCK": 4096, "num_warps": 8}, {"BLOCK": 1024, "num_warps": 4}, {"BLOCK": 8192, "num_warps": 8}])
@triton.jit
def _triad(a_ptr, b_ptr, c_ptr, s, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    c = tl.load(c_ptr + at, mask=inside)
    tl.store(a_ptr + at, tl.load(b_ptr + at, mask=inside) + s * c, mask=inside)


def triad(a: Any, b: Any, c: Any, s: float) -> None:
    """a <- b + s c, for vectors.

    Source: McCalpin, "STREAM", https://www.cs.virginia.edu/stream/
    """
    launch(_triad, lambda meta: (triton.cdiv(a.size, meta["BLOCK"]),), a, b, c, float(s), a.size)


def measure(what: str, size: Size, clock: Clock) -> dict:
    """{"unit": …, "value": …, "tried": [all that was measured]} of a bandwidth or a rate."""
    if what in BANDWIDTHS:
        return _bandwidth(what, size.copied, clock)
    tried = [_rate(what, n, clock) for n in size.matrices]
    return {"unit": "TFLOP/s", "value": max(row["value"] for row in tried), "tried": tried}


def _bandwidth(what: str, count: int, clock: Clock) -> dict:
    arrays = [cupy().ones(count // 4, np.float32) for _ in range(2 if what == "copy" else 3)]
    moved = len(arrays) * count // 4 * 4
    call = _copying(*arrays) if what == "copy" else functools.partial(triad, *arrays, 0.5)
    seen = clock(call)
    row = {"bytes": moved, "value": moved / seen["ms"] / 1e6, **seen}
    return {"unit": "GB/s", "value": row["value"], "tried": [row]}


def _copying(a: Any, b: Any) -> Any:
    return lambda: np.copyto(a, b)


def _rate(what: str, n: int, clock: Clock) -> dict:
    """Of products of normal numbers: with zeros a chip needs less power, and runs faster."""
    dtype = harness.BFLOAT16 if what == "bfloat16" else np.dtype(RATES[what])
    random = cupy().random
    x, y = (random.standard_normal((n, n), dtype=np.float32).astype(dtype) for _ in range(2))
    out = cupy().empty((n, n), dtype)
    before = cublas.get_float32_matmul_precision()
    cublas.set_float32_matmul_precision("high" if what == "tf32" else "highest")
    try:
        seen = clock(lambda: cublas.matmul(x, y, out))
    finally:
        cublas.set_float32_matmul_precision(before)
    return {"n": n, "value": 2 * n**3 / seen["ms"] / 1e9, **seen}
