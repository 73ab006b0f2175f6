"""What the chip can do at best, measured: bandwidth of copies and sums, and the rate of matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import Size
from mytorch.backends import cublas
from mytorch.backends.device import cupy


def measure(what: str, size: Size, clock: Clock) -> dict:
    """Returns {"unit": …, "value": …, "tried": [all that was measured]} of a bandwidth or a rate."""
    if what in ("copy", "add"):
        return {"unit": "GB/s", **_best([_bandwidth(what, size.copied // 4, clock)])}
    return {"unit": "TFLOP/s", **_best([_rate(what, n, clock) for n in size.matrices])}


def _best(tried: list[dict]) -> dict:
    return {"value": max(row["value"] for row in tried), "tried": tried}


def _bandwidth(what: str, n: int, clock: Clock) -> dict:
    """Of a <- b, or of a <- b + c, for vectors of float32."""
    a, *others = (cupy().ones(n, np.float32) for _ in range(2 if what == "copy" else 3))
    function = np.copyto if what == "copy" else np.add
    seen = clock(lambda: function(a, *others) if what == "copy" else function(*others, out=a))
    return {"n": n, "value": 4 * n * (1 + len(others)) / seen["ms"] / 1e6, **seen}


def _rate(what: str, n: int, clock: Clock) -> dict:
    """Of products of normal numbers: with zeros a chip needs less power, and runs faster."""
    dtype: Any = "float32" if what == "tf32" else what
    if what == "bfloat16":
        from ml_dtypes import bfloat16 as dtype
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
