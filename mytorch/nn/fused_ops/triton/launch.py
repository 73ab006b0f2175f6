"""
Start Triton's kernels on raw arrays. What becomes of a launch is up to the mode:

    run        it runs, on the GPU that holds the CuPy arrays
    interpret  Triton's interpreter runs it on NumPy arrays: with TRITON_INTERPRET=1 in the environment
    compile    nothing runs; what would is compiled, for any GPU: inside `compiling()` of compile.py
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton import knobs
from triton.runtime.jit import mangle_type

from ....backends.device import is_raw
from ...functional.composite import Unsupported
from .chips import CHIPS, Chip
from .pointer import Pointer
from .tune import Tuned, grid_of

Grid = tuple[int, ...]
OPTIONS = {"enable_fp_fusion": True}  # x * y + z in one instruction; Triton's default changes in 3.10


class _NoTorch:
    """Makes `import torch` fail."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("mytorch runs Triton without PyTorch", name=name)


def _keep_torch_out() -> None:
    """Triton 3.6 and 3.7 import PyTorch, where it is installed, for a kernel's first argument, and only then.

    Here that is a number, at a time when there is no PyTorch to be found.
    """
    sys.meta_path.insert(0, _NoTorch)
    try:
        mangle_type(1)
    finally:
        sys.meta_path.remove(_NoTorch)


_keep_torch_out()


def launch(kernel: Any, grid: Grid | Callable[[dict], Grid], *args: Any, **meta: Any) -> None:
    """Start a kernel.

    Args:
        kernel: a function under `@triton.jit`, perhaps also under `@tuned`.
        grid: the number of programs along 1 to 3 axes (at most 65535 along the last two), or a function of
            `meta` and the tuned configuration, in one dict, that returns it. None run if one of them is 0.
        args: the kernel's arguments by position; arrays become pointers, None stays None.
        meta: its compile-time arguments by name, and `num_warps` and `num_stages`.
    """
    pointers = [Pointer(a) if is_raw(a) else a for a in args]
    if not isinstance(kernel, Tuned):
        _mode.start(kernel, grid_of(grid, meta), pointers, meta)
        return
    for config in _mode.configs(kernel, grid, pointers, meta):
        whole = {**meta, **config}
        _mode.start(kernel.kernel, grid_of(grid, whole), pointers, whole)


def require_dtypes(*arrays: Any) -> None:
    """Raise `Unsupported` unless the arrays (None counts as well) are float16, bfloat16 or float32."""
    for a in arrays:
        if a is not None and a.dtype.name not in ("float32", "float16", "bfloat16"):
            raise Unsupported(f"Triton's kernels compute in float32: none for {a.dtype}")


def chip() -> Chip:
    """The GPU that a launch would be for."""
    return _mode.chip()


class Run:
    """On the GPU."""

    name = "run"

    @functools.cached_property
    def driver(self) -> Any:
        """Our driver, which is Triton's from the first use on."""
        from . import driver, gpu

        reason = gpu.why_not()
        if reason:
            raise RuntimeError(f"Triton's kernels can't run here: {reason}")
        return driver

    def start(self, kernel: Any, grid: Grid, pointers: list, meta: dict) -> None:
        self.driver  # noqa: B018 - without it, Triton would choose one of its own
        kernel[grid](*pointers, **OPTIONS, **meta)

    def configs(self, tuned: Tuned, grid: Any, pointers: list, meta: dict) -> list[dict]:
        return [tuned.best(self.start, grid, pointers, meta, self.chip(), self.driver.clock())]

    def chip(self) -> Chip:
        return self.driver.chip()


class Interpret:
    """In Triton's interpreter, as if on an H100."""

    name = "interpret"

    def start(self, kernel: Any, grid: Grid, pointers: list, meta: dict) -> None:
        from . import interpreter

        interpreter.run(kernel, grid, pointers, meta)

    def configs(self, tuned: Tuned, grid: Any, pointers: list, meta: dict) -> list[dict]:
        return tuned.candidates(pointers, meta, self.chip())[:1]

    def chip(self) -> Chip:
        return CHIPS[90]


_mode: Any = Interpret() if knobs.runtime.interpret else Run()


def mode() -> Any:
    return _mode


@contextmanager
def in_mode(new: Any) -> Iterator[None]:
    global _mode
    before, _mode = _mode, new
    try:
        yield
    finally:
        _mode = before
