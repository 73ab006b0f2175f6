"""The OpenBLAS of NumPy: its functions and its threads."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

SERIAL = 1 << 18  # multiplications of a product that it computes in the calling thread

# NumPy's wheels rename the functions, other builds don't; "64_" marks those with 64-bit integers.
_NAMES = [(prefix, suffix) for prefix in ("scipy_", "") for suffix in ("64_", "")]


class OpenBLAS:
    """The functions of a loaded library.

    Attributes:
        path: of the library.
        sgemm: the address of `cblas_sgemm`. Its integers have 32 or 64 bits; small ones can be passed as 64
            bits to both, since on Linux each has its own register or stack slot.
        get_num_threads, set_num_threads: of the whole process.
        get_corename: which kernels it uses, as bytes: b"SkylakeX", b"Haswell", …
    """

    def __init__(self, path: str, library: ctypes.CDLL, prefix: str, suffix: str):
        self.path = path
        self.sgemm = address(getattr(library, f"{prefix}cblas_sgemm{suffix}"))
        self.get_num_threads = getattr(library, f"{prefix}openblas_get_num_threads{suffix}")
        self.set_num_threads = getattr(library, f"{prefix}openblas_set_num_threads{suffix}")
        self.get_corename = getattr(library, f"{prefix}openblas_get_corename{suffix}")
        self.get_corename.restype = ctypes.c_char_p


def address(function: Callable) -> int:
    """Returns the address of a ctypes function."""
    return ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def openblas() -> OpenBLAS | None:
    """Returns NumPy's OpenBLAS; None for another BLAS, or without Linux's /proc to list libraries."""
    np.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))  # loads it
    for path in sorted(_loaded(), key=lambda path: "numpy" not in path):  # SciPy has another one
        library = ctypes.CDLL(path)
        for prefix, suffix in _NAMES:
            if hasattr(library, f"{prefix}cblas_sgemm{suffix}"):
                return OpenBLAS(path, library, prefix, suffix)
    return None


def _loaded() -> set[str]:
    try:
        with open("/proc/self/maps") as file:
            lines = file.readlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[5].strip() for line in lines if "openblas" in line}
