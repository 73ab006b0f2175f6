"""
Settings of the process that make NumPy faster, applied at import; `MYTORCH_TUNE=0` turns all of them off.

- `blas`: on AMD CPUs with AVX-512, OpenBLAS before 0.3.31 chooses its AVX2 kernels; the AVX-512 ones are up
  to twice as fast. It reads the choice from the environment when NumPy loads it, so this works only before
  NumPy is loaded; the user's choice has precedence, and child processes don't inherit ours.
- `malloc`: glibc returns the memory of every large array to the kernel when it is freed, so the next one
  takes page faults. With higher thresholds a training step reuses its memory. What constructing, converting
  or loading a large model leaves is returned once.

`report()` returns what is on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys

CORE_VARIABLE = "OPENBLAS_CORETYPE"
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP_BYTES = (1 << 30, 1 << 25)  # older glibc takes at most 32 MiB

LARGE = 1 << 26  # bytes of a model: less isn't worth the time

_KEPT = "freed arrays"

_done: dict[str, str] = {}


def at_import() -> None:
    """Tunes BLAS (by loading NumPy) and malloc, unless `MYTORCH_TUNE=0`."""
    if os.environ.get("MYTORCH_TUNE") == "0":
        _done.update(blas="off (MYTORCH_TUNE=0)", malloc="off (MYTORCH_TUNE=0)")
        return
    _done["blas"] = _tune_blas()
    _done["malloc"] = _tune_malloc()


def report() -> dict[str, str]:
    """Returns what was tuned, or why not, by name."""
    return dict(_done)


def _tune_blas() -> str:
    if os.environ.get(CORE_VARIABLE):
        return f"{CORE_VARIABLE}={os.environ[CORE_VARIABLE]} (the user's choice)"
    if "numpy" in sys.modules:
        return "unchanged: NumPy was loaded before mytorch"
    vendor, flags = _cpu()
    if not flags >= _AVX512:
        return "unchanged: the CPU has no AVX-512"
    if vendor != "AuthenticAMD":
        return "unchanged: OpenBLAS chooses AVX-512 by itself on this CPU"
    os.environ[CORE_VARIABLE] = "SkylakeX"
    try:
        import numpy  # noqa: F401 - OpenBLAS reads the variable now
    finally:
        del os.environ[CORE_VARIABLE]
    return "AVX-512 kernels (SkylakeX) requested"


def _cpu() -> tuple[str, set[str]]:
    """Returns the vendor and the flags of the first CPU on Linux, else empty ones."""
    vendor, flags = "", set()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "vendor_id":
                vendor = value.strip()
            elif name.strip() == "flags":
                flags = set(value.split())
                break
    return vendor, flags


def _tune_malloc() -> str:
    if platform.libc_ver()[0] != "glibc":
        return "unchanged: not glibc"
    if "MALLOC_MMAP_THRESHOLD_" in os.environ or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return "unchanged: the user's choice"
    mallopt = ctypes.CDLL(None).mallopt
    for size in _KEEP_BYTES:
        if mallopt(_M_MMAP_THRESHOLD, size) and mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES[0]):
            return f"{_KEPT} up to {size >> 20} MiB stay with the process"
    return "refused by mallopt"


def release_freed_memory(nbytes: int) -> None:
    """Returns freed memory to the system, if `malloc` was tuned, after a model of `nbytes` was constructed,
    converted or loaded, and is large."""
    if nbytes >= LARGE and _done.get("malloc", "").startswith(_KEPT):
        ctypes.CDLL(None).malloc_trim(0)
