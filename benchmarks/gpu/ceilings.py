"""What the chip can do at best, measured: bandwidth of copies and sums, and the rate of matrix products."""

import mytorch
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import SIZES
from mytorch.backends import cublas


def measure(library, size: str, what: str) -> dict:
    """Returns {"unit": …, "value": …, "tried": [all that was measured]} of a bandwidth or a rate."""
    sizes, clock = SIZES[size], Clock(library, SIZES[size])
    if what in ("copy", "add"):
        unit, tried = "GB/s", [_bandwidth(what, sizes.copied // 4, clock)]
    else:
        unit, tried = "TFLOP/s", [_rate(what, n, clock) for n in sizes.matrices]
    return {"unit": unit, "value": max(row["value"] for row in tried), "tried": tried}


def _bandwidth(what: str, n: int, clock: Clock) -> dict:
    """Of a <- b, or of a <- b + c, for vectors of float32."""
    a, b, c = (mytorch.ones(n, device="cuda") for _ in range(3))
    arrays, call = (2, lambda: a.copy_(b)) if what == "copy" else (3, lambda: mytorch.add(b, c, out=a))
    seen = clock(call)
    return {"n": n, "value": arrays * 4 * n / seen["ms"] / 1e6, **seen}


def _rate(what: str, n: int, clock: Clock) -> dict:
    """Of products of normal numbers: with zeros a chip needs less power, and runs faster."""
    dtype = getattr(mytorch, "float32" if what == "tf32" else what)
    x, y = (mytorch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    before = cublas.get_float32_matmul_precision()
    cublas.set_float32_matmul_precision("high" if what == "tf32" else "highest")
    try:
        seen = clock(lambda: x @ y)
    finally:
        cublas.set_float32_matmul_precision(before)
    return {"n": n, "value": 2 * n**3 / seen["ms"] / 1e9, **seen}
