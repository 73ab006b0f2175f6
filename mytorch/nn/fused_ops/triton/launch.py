"""
Launch Triton's kernels on CuPy arrays, without PyTorch.

What a launch does depends on the mode. The package has one, `Run`; the tests interpret kernels on NumPy
arrays, or only compile them, inside `in_mode()`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from triton.runtime.jit import JITFunction, mangle_type

from ....backends.device import RawArray, is_raw
from ....backends.kinds import cupy
from ...functional.composite import Unsupported
from .chips import Chip
from .pointer import Pointer
from .prepared import Prepared, is_watched, kind_of, prepare
from .tune import Config, Tuned, grid_of

if TYPE_CHECKING:
    from triton.compiler.compiler import CompiledKernel

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
    def find_spec(name: str, path: object = None, target: object = None) -> None:
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


def launch(kernel: JITFunction | Tuned, grid: GridLike, *args: object, **meta: object) -> None:
    """Launches a kernel.

    Args:
        kernel: a function decorated with `@triton.jit`, and optionally with `@tuned`.
        grid: the number of programs along 1 to 3 axes (at most 65535 along the last two), or a function of
            `meta` and the tuned configuration, in one dict, that returns it. No program runs if one is 0.
        args: the kernel's arguments by position; arrays become pointers, None stays None.
        meta: its compile-time arguments by name, and `num_warps` and `num_stages`.
    """
    if _mode is _run:
        _run.start(kernel, grid, args, meta)
        return
    pointers = pointers_of(args)
    if not isinstance(kernel, Tuned):
        _mode.launch(kernel, grid_of(grid, meta), pointers, meta)
        return
    for config in _mode.configs(kernel, grid, pointers, meta):
        merged = {**meta, **config}
        _mode.launch(kernel.kernel, grid_of(grid, merged), pointers, merged)


def pointers_of(args: Iterable[object]) -> list:
    """Returns the arguments with pointers for arrays."""
    return [Pointer(a) if is_raw(a) else a for a in args]


def require_dtypes(*arrays: RawArray | None) -> None:
    """Raises `Unsupported` unless all arrays that aren't None are float16, bfloat16 or float32."""
    for a in arrays:
        if a is not None and not _has_kernels(a.dtype):
            raise Unsupported(f"Triton's kernels compute in float32: none for {a.dtype}")


@functools.lru_cache(64)
def _has_kernels(dtype: np.dtype) -> bool:
    return dtype.name in ("float32", "float16", "bfloat16")


def chip() -> Chip:
    """Returns the GPU that kernels are launched for."""
    return _mode.chip()


class Run:
    """Kernels run on the GPU that holds the arrays."""

    def __init__(self):
        self._prepared: dict[tuple, Prepared] = {}

    @functools.cached_property
    def driver(self) -> ModuleType:
        """Our driver, which becomes Triton's at the first use."""
        from . import driver, gpu

        reason = gpu.why_not()
        if reason:
            raise RuntimeError(f"Triton's kernels can't run here: {reason}")
        return driver

    def start(self, kernel: JITFunction | Tuned, grid: GridLike, args: tuple, meta: dict) -> None:
        """Launches a kernel with these arguments, as it was prepared, or prepares it."""
        driver = self.driver
        kind, values = kind_of(args, kernel.places if isinstance(kernel, Tuned) else (), cupy().ndarray)
        key = None if kind is None else (id(kernel), driver.device(), *meta.items(), *kind)
        known = self._prepared.get(key)
        if known is not None and not is_watched():
            known.start(grid_of(grid, known.meta), driver.stream(), values)
            return
        pointers, source = pointers_of(args), kernel
        if isinstance(kernel, Tuned):
            (config,) = self.configs(kernel, grid, pointers, meta)
            kernel, meta = kernel.kernel, {**meta, **config}
        compiled = self.launch(kernel, grid_of(grid, meta), pointers, meta)
        if key is not None and driver.clock().usable():  # else a configuration may not be the final one
            made = prepare(source, kernel, compiled, len(args), meta)
            if made is not None:
                self._prepared[key] = made

    def launch(self, kernel: JITFunction, grid: Grid, pointers: list, meta: dict) -> CompiledKernel:
        self.driver  # noqa: B018 - without it, Triton would use its own, which imports PyTorch
        return kernel[grid](*pointers, **OPTIONS, **meta)

    def configs(self, tuned: Tuned, grid: GridLike, pointers: list, meta: dict) -> list[Config]:
        return [tuned.best(self.launch, grid, pointers, meta, self.chip(), self.driver.clock())]

    def chip(self) -> Chip:
        return self.driver.chip()


_run = Run()
_mode: Mode = _run


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
