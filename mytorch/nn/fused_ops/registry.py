"""
Loads the files of kernels (see `kernels.TABLE`): each at the first call that needs it, because importing
Numba or Triton takes long. On import a file registers its kernels, with `@gelu.fused("cpu")`.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from ...backends import threads
from ...backends.device import RawArray, device_of
from ..functional.composite import REGISTRY, Unsupported
from ..functional.variant import uses_kernels
from . import background
from .kernels import CPU_KERNELS, KERNELS

FOLDERS = {"cpu": "numba", "cuda": "triton"}  # by kind of device


def register() -> None:
    """Registers with each composite how its kernels are loaded."""
    for kind in FOLDERS:
        for name, file in KERNELS.items():
            REGISTRY[name].suppliers[kind] = functools.partial(load, kind, file)
    for name, file in CPU_KERNELS.items():
        REGISTRY[name].suppliers["cpu"] = functools.partial(load, "cpu", file)


def load(kind: str, file: str, demanded: bool = False) -> ModuleType:
    """Imports a file of kernels for a kind of device.

    Args:
        demanded: compile it now, if necessary, and not in the background.

    Raises:
        Unsupported: kernels can't run, or are being compiled.
    """
    reason = why_not(kind)
    if not reason and kind == "cpu" and not demanded and not background.is_compiled(file):
        reason = "its kernels are being compiled"
    if reason:
        raise Unsupported(reason)
    return importlib.import_module(f"{__package__}.{FOLDERS[kind]}.{file}")


def find(file: str, *arrays: RawArray) -> ModuleType | None:
    """Returns the module of kernels for raw arrays, for functions that are no composites, or None.

    The kernels compute in float32. Nothing is converted for them: None for arrays of another dtype.
    """
    if not uses_kernels():
        return None
    try:
        module = load(device_of(arrays[0]).kind.kernels, file)
        module.require_dtypes(*arrays)
    except Unsupported:
        return None
    return module


@functools.cache
def why_not(kind: str) -> str:
    """Returns why kernels can't run on this kind of device, and what to do about it; "" if they can."""
    if kind == "cpu":
        return "" if threads.installed() else "Numba is not installed: pip install 'mytorch[cpu]'"
    if kind not in FOLDERS:
        return f"there are no kernels for {kind} tensors"
    from . import triton

    return triton.why_not()
