"""A strict stand-in for CuPy, so that the `cuda` code paths run without a GPU. For tests only.

    strict_cupy.install()      # from now on `import cupy` gives the stand-in, with two GPUs
    strict_cupy.uninstall()

NumPy does the computing; the stand-in does the refusing, as the real CuPy would on a GPU:

- its arrays don't turn into NumPy arrays by themselves, nor mix with NumPy's or those of other devices;
- a function, method or argument that CuPy 13 or 14 lacks raises (names.txt lists what both have: record.py);
- results are CuPy arrays, 0-d ones too, with CuPy's dtypes and in C order;
- while a graph is captured, nothing may wait for the GPU.

How it differs from a GPU: random numbers, the last bits of floats, no kernels.
A name that CuPy has and the stand-in hasn't raises NotImplementedError: add it in special.py, creation.py
or methods.py, and a case to test_strict_cupy.py.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np

from . import device, memory, modules
from . import methods as _methods  # noqa: F401 - it completes the array

_replaced: dict[str, types.ModuleType | None] = {}


def install(device_count: int = 2) -> types.ModuleType:
    """Put the stand-in in place of CuPy, with `device_count` GPUs (0: CuPy is there, but no GPU is)."""
    device.reset(device_count)
    memory.reset()
    modules.randoms.seed(0)
    for name, module in modules.MODULES.items():
        _replaced.setdefault(name, sys.modules.get(name))
        sys.modules[name] = module
    return modules.cupy


def uninstall() -> None:
    """Give `cupy` back to what was there before, if anything was."""
    for name, module in _replaced.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
    _replaced.clear()


def to_numpy(result: Any) -> Any:
    """A result with NumPy arrays for CuPy's, also inside tuples and lists.

    Raises:
        AssertionError: a NumPy array or scalar is in it, which the real CuPy would not have given.
    """
    if isinstance(result, (tuple, list)):
        return type(result)(map(to_numpy, result))
    assert not isinstance(result, (np.ndarray, np.generic)), f"{type(result)} leaked"
    return result.get() if isinstance(result, modules.cupy.ndarray) else result
