"""
Launch Triton's kernels on CuPy arrays, without PyTorch.

What a launch does depends on the mode. The package has one, `Run`; the tests interpret kernels on NumPy
arrays, or only compile them, inside `in_mode()`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from triton.runtime.jit import JITFunction, mangle_type

from ....backends.device import RawArray, is_raw
from ...functional.composite import Unsupported
from .chips import Chip
from .pointer import Pointer
from .tune import Config, Tuned, grid_of

Grid = tuple[int, ...]
GridLike = Grid | Callable[[dict], Grid]
OPTIONS = {"enable_fp_fusion": True}  # x * y + z in one instruction; Triton's default changes in 3.10


class Mode(Protocol):
    """What a launch does."""

    def launch(self, kernel: JITFunction, grid: Grid, pointers: list, meta: dict) -> None:
        """Launches a kernel with these arguments."""

    def configs(self, tuned: Tuned, grid: GridLike, pointers: list, meta: dict) -> list[Config]:
        """Returns the configurations with which a tuned kernel is to be launched."""

    def chip(self) -> Chip:
        """Returns the GPU that kernels are launched for."""


class _NoTorch:
    """Makes `import torch` fail."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("mytorch runs Triton without PyTorch", name=name)


def _keep_torch_out() -> None:
    """Mangles a first argument while PyTorch can't be imported.

    Triton 3.6 and 3.7 import PyTorch, where it is installed, for the first argument of the first kernel.
    """
    sys.meta_path.insert(0, _NoTorch)
    try:
        mangle_type(1)
    finally:
        sys.meta_path.remove(_NoTorch)


_keep_torch_out()


def launch(kernel: JITFunction | Tuned, grid: GridLike, *args: Any, **meta: Any) -> None:
    """Launches a kernel.

    Args:
        kernel: a function decorated with `@triton.jit`, and optionally with `@tuned`.
        grid: the number of programs along 1 to 3 axes (at most 65535 along the last two), or a function of
            `meta` and the tuned configuration, in one dict, that returns it. No program runs if one is 0.
        args: the kernel's arguments by position; arrays become pointers, None stays None.
        meta: its compile-time arguments by name, and `num_warps` and `num_stages`.
    """
    pointers = [Pointer(a) if is_raw(a) else a for a in args]
    if not isinstance(kernel, Tuned):
        _mode.launch(kernel, grid_of(grid, meta), pointers, meta)
        return
    for config in _mode.configs(kernel, grid, pointers, meta):
        merged = {**meta, **config}
        _mode.launch(kernel.kernel, grid_of(grid, merged), pointers, merged)


def require_dtypes(*arrays: RawArray | None) -> None:
    """Raises `Unsupported` unless all arrays that aren't None are float16, bfloat16 or float32."""
    for a in arrays:
        if a is not None and a.dtype.name not in ("float32", "float16", "bfloat16"):
            raise Unsupported(f"Triton's kernels compute in float32: none for {a.dtype}")


def chip() -> Chip:
    """Returns the GPU that kernels are launched for."""
    return _mode.chip()


class Run:
    """Kernels run on the GPU that holds the arrays."""

    @functools.cached_property
    def driver(self) -> ModuleType:
        """Our driver, which becomes Triton's at the first use."""
        from . import driver, gpu

        reason = gpu.why_not()
        if reason:
            raise RuntimeError(f"Triton's kernels can't run here: {reason}")
        return driver

    def launch(self, kernel: JITFunction, grid: Grid, pointers: list, meta: dict) -> None:
        self.driver  # noqa: B018 - without it, Triton would use its own, which imports PyTorch
        kernel[grid](*pointers, **OPTIONS, **meta)

    def configs(self, tuned: Tuned, grid: GridLike, pointers: list, meta: dict) -> list[Config]:
        return [tuned.best(self.launch, grid, pointers, meta, self.chip(), self.driver.clock())]

    def chip(self) -> Chip:
        return self.driver.chip()


_mode: Mode = Run()


def mode() -> Mode:
    """Returns the current mode."""
    return _mode


@contextmanager
def in_mode(new: Mode) -> Iterator[None]:
    """Launches inside are up to another mode."""
    global _mode
    before, _mode = _mode, new
    try:
        yield
    finally:
        _mode = before
