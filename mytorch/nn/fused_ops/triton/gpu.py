"""Whether Triton can use a GPU, determined without loading Triton as far as possible."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys


def why_not() -> str:
    """Returns why Triton can't run on a GPU of this machine; "" if it can, and then installs our driver."""
    module = sys.modules.get("cupy")
    spec = importlib.util.find_spec("cupy") if module is None else module.__spec__
    if spec is None:
        return "CuPy is not installed: pip install 'mytorch[cuda12]' or 'mytorch[cuda13]'"
    if spec.origin is None:
        return "this CuPy is a stand-in without a GPU"
    try:
        ctypes.CDLL(os.path.join(os.environ.get("TRITON_LIBCUDA_PATH", ""), "libcuda.so.1"))
    except OSError as error:
        return f"there is no NVIDIA driver ({error})"
    from . import driver

    return driver.why_not()
