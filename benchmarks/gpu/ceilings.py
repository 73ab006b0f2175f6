"""What the chip can do at best, measured: bandwidth of copies and sums, and the rate of matrix products."""

import mytorch
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.sizes import Size
from mytorch.backends import cublas


def ceiling(library, size: Size, what: str) -> dict:
    """Returns {"unit": …, "value": …} of a bandwidth or a rate, the best of what was tried."""
    clock = Clock(library, size)
    if what in ("copy", "add"):
        return {"unit": "GB/s", "value": _bandwidth(what, size.copied // 4, clock)}
    return {"unit": "TFLOP/s", "value": max(_rate(what, n, clock) for n in size.matrices)}


def _bandwidth(what: str, n: int, clock: Clock) -> float:
    """Of a <- b, or of a <- b + c, for vectors of float32."""
    a, b, c = (mytorch.ones(n, device="cuda") for _ in range(3))
    arrays, call = (2, lambda: a.copy_(b)) if what == "copy" else (3, lambda: mytorch.add(b, c, out=a))
    return arrays * 4 * n / clock(call)["ms"] / 1e6


def _rate(what: str, n: int, clock: Clock) -> float:
    """Of products of normal numbers: with zeros a chip needs less power, and runs faster."""
    dtype = getattr(mytorch, "float32" if what == "tf32" else what)
    x, y = (mytorch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    before = cublas.get_float32_matmul_precision()
    cublas.set_float32_matmul_precision("high" if what == "tf32" else "highest")
    try:
        return 2 * n**3 / clock(lambda: x @ y)["ms"] / 1e9
    finally:
        cublas.set_float32_matmul_precision(before)
