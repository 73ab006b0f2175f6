"""
Compiled loops for the CPU, by Numba. Importing this module starts the pool of threads (see `threads`).

    @device                           # a function of numbers, inlined into the kernels that call it
    def square(x):
        return x * x

    @kernel                           # iterations of prange are distributed to the threads
    def squares(x, out):
        for i in prange(x.size):
            out[i] = square(x[i])

A kernel is compiled for the types of its arguments at the first call with them, and cached on disk. Python's
threads take turns: the pool, and the number of OpenBLAS's threads that it sets, belong to the whole process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import platform
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import threads
from .door import forces, in_force

threads.why_serial()  # before Numba is imported, which reads the environment

import numba  # noqa: E402
import numpy as np  # noqa: E402
from numba import prange  # noqa: E402
from numba.core import codegen, event  # noqa: E402

__all__ = ["device", "has_instructions", "kernel", "prange", "routine"]

# Sums may be reordered, products and sums contracted. The rest of "fast math" would break NaN and inf.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
_PATIENCE = 60.0  # seconds for another process to compile a kernel
_OPTIONS = {"fastmath": FASTMATH, "error_model": "numpy", "boundscheck": False}


def has_instructions(name: str) -> bool:
    """Returns whether kernels may use a set of instructions, "avx512f" for example: those of this CPU, or of
    NUMBA_CPU_FEATURES; NUMBA_CPU_NAME=generic has none. 64-bit Arm always has "fma" and "f16c"."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return name in ("fma", "f16c")
    chosen = numba.config.CPU_FEATURES
    features = codegen.get_host_cpu_features() if chosen is None else chosen
    return f"+{name}" in features.split(",")


def device(function: Callable) -> Callable:
    """Compiles a function of numbers that kernels call: inlined, so that loops over it vectorize."""
    return numba.njit(function, inline="always", **_OPTIONS)


def routine(function: Callable) -> Callable:
    """Compiles a function of arrays that kernels call: once, not into each of them, which takes long."""
    return numba.njit(function, **_OPTIONS)


def kernel(
    function: Callable | None = None, *, grain: int = 1 << 14, compiled_twice: bool = False
) -> Callable:
    """Compiles a function for the pool, or to run serially without one.

    Args:
        grain: a call whose largest array has fewer elements runs in one thread: waking the others takes
            microseconds, and more while other programs use the cores.
        compiled_twice: such calls run code without threads, which is compiled separately and 4 µs faster.
    """
    if function is None:
        return functools.partial(kernel, grain=grain, compiled_twice=compiled_twice)
    on_pool, serial = None, None

    @functools.wraps(function)
    def call(*args):
        nonlocal on_pool, serial
        if forces and in_force().takes_launches:
            return in_force().launch(call, args)
        small = is_small(args, grain)
        if (small and compiled_twice) or not threads.running:
            return compiled_serially()(*args)
        if on_pool is None:
            on_pool = _compiled(function, parallel=True)
        with threads.turn:
            if small:
                with threads.only_one():
                    return on_pool(*args)
            return on_pool(*args)

    def compiled_serially() -> Callable:
        """Returns the kernel for one thread, for callers that know that arrays are small."""
        nonlocal serial
        if serial is None:
            serial = _compiled(_renamed(function), parallel=False)
        return serial

    call.serial = compiled_serially
    return call


def is_small(args: tuple, grain: int) -> bool:
    """Returns whether there are arrays among the arguments, all with fewer than `grain` elements."""
    found = False
    for a in args:
        if type(a) is np.ndarray:
            if a.size >= grain:
                return False
            found = True
    return found


def _renamed(function: Callable) -> Callable:
    """Returns a copy with another name: Numba's cache ignores a difference in the options."""
    copy = types.FunctionType(function.__code__, function.__globals__, f"{function.__name__}_serial")
    copy.__qualname__, copy.__module__ = f"{function.__qualname__}_serial", function.__module__
    return copy


def _compiled(function: Callable, parallel: bool) -> Any:
    options = {**_OPTIONS, "parallel": parallel}
    try:
        compiled = numba.njit(function, cache=True, **options)
    except RuntimeError as error:  # no folder can be written to
        warnings.warn(f"compiled kernels can't be cached, each process compiles them: {error}", stacklevel=3)
        return numba.njit(function, **options)
    # Numba considers a cache file fresh if the kernel's source is unchanged; helpers matter, too.
    compiled._cache._cache_file._source_stamp = _stamp(function.__code__.co_filename)
    index = compiled._cache._cache_file._index_path
    compiled.compile = _one_at_a_time(compiled.compile, Path(f"{index}.lock"))
    return compiled


def _one_at_a_time(compile: Callable, lock: Path) -> Callable:
    """Returns `compile` for one process at a time.

    The other ranks of a job, which need the same kernel at the same moment, wait, and find it in the cache.
    Where files can't be locked each of them compiles it; also if the one that does so is stopped for minutes.

    Args:
        lock: a file beside those of the cache.
    """

    def locked(signature: Any):
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                lock.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open(lock, "ab"))
                _wait_for(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
                stack.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a child that was forked has the file, too
            return compile(signature)

    return locked


def _wait_for(lock: Callable[[], None]) -> None:
    """Calls `lock` until it doesn't raise BlockingIOError, or raises that in the end."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return lock()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _stamp(path: str) -> str:
    """Returns a hash of all sources that a kernel may be compiled from: those beside it, and ours."""
    here = Path(__file__).parent
    folders = here, here.parent / "nn" / "fused_ops" / "numba", Path(path).parent
    return b"".join(map(_sources, folders)).hex()


@functools.cache
def _sources(folder: Path) -> bytes:
    """Returns a hash of the Python files in a folder."""
    return hashlib.sha256(b"".join([source.read_bytes() for source in sorted(folder.glob("*.py"))])).digest()


class _Compilations(event.Listener):
    """Prints once in a process that kernels are being compiled, which takes a while.

    Meanwhile the garbage collector is off: it would look at all that the compiler makes, again and again, for
    a tenth of the time.
    """

    def __init__(self):
        self.printed = False
        self._depth, self._collects = 0, False

    def on_start(self, started: event.Event) -> None:
        if not self._depth:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1  # one compilation causes others; Numba's lock lets one thread compile at a time
        name = getattr(started.data.get("dispatcher"), "__module__", "") or ""
        if not self.printed and name.startswith("mytorch"):  # the package, or a loop of a program
            self.printed = True
            print(
                "mytorch: compiling kernels for this CPU, a second or two each; they are kept for next time",
                file=sys.stderr,
            )

    def on_end(self, ended: event.Event) -> None:
        self._depth -= 1
        if not self._depth and self._collects:
            gc.enable()


event.register("numba:compile", _Compilations())
