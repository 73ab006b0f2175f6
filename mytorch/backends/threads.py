"""
The pool of threads on the CPU: Numba's, on OpenMP.

Two pools compete for the same cores: while one works, the other's threads spin, waiting for their next job.
So once compiled kernels run, large products run on the same pool, too (see `gemm`), and OpenBLAS is called
with one thread from each of its threads.

Kernels run serially without Numba, without OpenMP (Numba's own replacement isn't thread-safe), and in a
forked child, which has a copy of the memory but not of the threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

SPIN_COUNT = "20000"  # of an OpenMP thread before it sleeps, about 50 µs: longer than between ops
_SETTINGS = {
    "NUMBA_THREADING_LAYER": "omp", "GOMP_SPINCOUNT": SPIN_COUNT,
    # Where colorama is installed, coloured messages end each process with an escape sequence in its output.
    "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
}

running = False  # whether a kernel has started the pool; read as `threads.running`
_reason: str | None = None  # why there is no pool; "" if it runs; None before the first check
_wanted: int | None = None  # the number of threads, once it is set or the pool runs
_numba: ModuleType | None = None  # the module, once it is loaded
_set_mask: Callable[[int], object]  # `numba.set_num_threads` without its checks, a tenth of its time
turn = threading.Lock()  # held while the pool is used


def installed() -> bool:
    """Returns whether Numba can be imported."""
    if "numba" in sys.modules:
        return sys.modules["numba"] is not None
    return importlib.util.find_spec("numba") is not None


def why_serial() -> str:
    """Returns why kernels run serially; "" if they run on the pool, which is started if necessary."""
    global running, _reason
    if _reason is None:
        _reason = _start()
        running = not _reason
    return _reason


def get_num_threads() -> int:
    """Returns the number of threads that a kernel or a large product uses on the CPU."""
    return _wanted or default_num_threads()


def set_num_threads(num_threads: int) -> None:
    """Sets the number of threads on the CPU, for kernels and for NumPy's products.

    Raises:
        TypeError: not an int.
        RuntimeError: fewer than 1, or more than the pool was started with (set NUMBA_NUM_THREADS before).
    """
    global _wanted
    if not isinstance(num_threads, int) or isinstance(num_threads, bool):
        raise TypeError(f"set_num_threads(): expected an int, got {type(num_threads).__name__}")
    if num_threads < 1:
        raise RuntimeError(f"set_num_threads(): expects a positive integer, got {num_threads}")
    if running:
        _set_pool(num_threads)
    _wanted = num_threads
    from .openblas import openblas

    library = openblas()
    if library is not None:
        library.set_num_threads(num_threads)


class only_one:  # noqa: N801 - used like a function
    """Context in which kernels run in one thread of the pool, without waking the others."""

    def __enter__(self) -> None:
        _set_mask(1)

    def __exit__(self, *exception: object) -> None:
        _set_mask(_wanted)


def _set_pool(num_threads: int) -> None:
    most = _numba.config.NUMBA_NUM_THREADS
    if num_threads > most:
        raise RuntimeError(
            f"set_num_threads(): got {num_threads} threads, the pool was started with {most}; "
            f"set the environment variable NUMBA_NUM_THREADS={num_threads} before the start"
        )
    _numba.set_num_threads(num_threads)


def default_num_threads() -> int:
    """Returns OMP_NUM_THREADS, or the number of cores that this process may use."""
    requested = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return int(requested) if requested.isdecimal() and int(requested) else available_cores()


def available_cores() -> int:
    """Returns the number of cores that this process may use, by affinity and by the container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = file.read().split()
        if quota != "max":
            return max(1, min(cores, math.ceil(int(quota) / int(period))))
    return cores


def _start() -> str:
    """Loads Numba and starts its OpenMP threads; returns why that is impossible, or ""."""
    global _numba, _set_mask, _wanted
    if not installed():
        return "Numba is not installed: pip install 'mytorch[cpu]'"
    wanted = get_num_threads()
    with _environment({**_SETTINGS, "NUMBA_NUM_THREADS": str(max(wanted, available_cores()))}):
        import numba

        if numba.config.THREADING_LAYER == "default":  # it was imported earlier, without our environment
            numba.config.THREADING_LAYER = "omp"
        _numba, _wanted = numba, min(wanted, numba.config.NUMBA_NUM_THREADS)
        try:
            with _openmp_threads_of_others():
                numba.set_num_threads(_wanted)
        except ValueError as error:  # Numba can't load the layer
            return f"Numba has no OpenMP threads here (is libgomp installed?): {error}".splitlines()[0]
        from numba.np.ufunc import parallel

        _set_mask = getattr(parallel, "_set_num_threads", numba.set_num_threads)
        layer = numba.threading_layer()
    if layer == "workqueue":
        return "Numba runs on its workqueue, which isn't thread-safe"
    return ""


@contextlib.contextmanager
def _openmp_threads_of_others() -> Iterator[None]:
    """Context after which OpenMP's default number of threads is as before.

    Numba sets it when it starts its threads, although it asks for their number in each call. Other libraries
    in the process, such as PyTorch, then used more threads than they were told to.
    """
    try:
        from numba.np.ufunc import omppool
    except ImportError:
        omppool = None
    if omppool is None or os.name == "nt":  # without OpenMP, or without one scope for all libraries
        yield
        return
    openmp = ctypes.CDLL(None)  # PyTorch loads its own copy for all: Numba's calls go there
    if not hasattr(openmp, "omp_get_max_threads"):
        openmp = ctypes.CDLL(omppool.__file__)
    before = openmp.omp_get_max_threads()
    try:
        yield
    finally:
        openmp.omp_set_num_threads(before)


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Context in which these environment variables are set, unless the user has set them."""
    ours = {name: value for name, value in settings.items() if name not in os.environ}
    if "OMP_WAIT_POLICY" in os.environ:
        ours.pop("GOMP_SPINCOUNT", None)
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _in_forked_child() -> None:
    global running, _reason, turn
    turn = threading.Lock()  # another thread of the parent may have held it
    if running:
        running, _reason = False, "a forked process has none of its parent's threads"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
