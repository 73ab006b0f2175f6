"""The processor, the load of other programs, and the environment that every measured process gets."""

import contextlib
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

try:
    import psutil
except ImportError:
    raise SystemExit("the benchmarks need psutil: pip install psutil") from None

PROC = Path("/proc")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# Each library chooses its kernels for this processor. Some systems name older ones for all users, so that
# results are the same on all their machines.
KERNEL_CHOICES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES", "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES",
)


def cpu_model() -> str:
    """Returns the processor's name, its cores, and its widest vectors."""
    file = PROC / "cpuinfo"
    lines = file.read_text().splitlines() if file.exists() else []
    facts = dict([part.strip() for part in line.split(":", 1)] for line in lines if ":" in line)
    flags = facts.get("flags", "").split()
    vectors = ", AVX-512" if "avx512f" in flags else ", AVX2" if "avx2" in flags else ""
    return f"{facts.get('model name', platform.machine())} ({os.cpu_count()} cores{vectors})"


def environment() -> dict[str, str]:
    """Returns the variables of a measured process: two threads unless they are set, no KERNEL_CHOICES."""
    threads = os.environ.get("OMP_NUM_THREADS", "2")
    kept = {name: value for name, value in os.environ.items() if name not in KERNEL_CHOICES}
    return {name: threads for name in THREAD_VARIABLES} | kept


def busy_seconds() -> tuple[float, float]:
    """Returns the time since boot in which our cores were not idle, and what of it this process used, with
    its children.

    The first is the clock less the idle time, which the kernel measures exactly while it samples the other
    columns. Time that a hypervisor gave to another machine counts as busy.
    """
    cores, times = os.sched_getaffinity(0), psutil.cpu_times(percpu=True)
    idle = sum(times[core].idle + times[core].iowait for core in cores)
    own, me = 0.0, psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            own += sum(process.cpu_times()[:4])  # also of its ended children
    return time.clock_gettime(time.CLOCK_BOOTTIME) * len(cores) - idle, own


def watch(action: Callable[[], Any]) -> tuple[Any, float | None]:
    """Returns the result of `action()`, and the cores that other programs kept busy (None: not known)."""
    if not PROC.exists():
        return action(), None
    begin, (busy, own) = time.perf_counter(), busy_seconds()
    result = action()
    seconds, (busy_after, own_after) = time.perf_counter() - begin, busy_seconds()
    return result, (busy_after - busy - (own_after - own)) / seconds


def forget_peak_memory() -> None:
    """Resets this process's memory peak, where the system can. Source: proc_pid_clear_refs(5)."""
    with contextlib.suppress(OSError):
        (PROC / "self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Returns the largest resident memory of this process since the reset, in bytes; 0 if none tells."""
    status = PROC / "self/status"
    if not status.exists():
        return 0
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024


def read_rate() -> float:
    """Returns how many GB a second all cores read: the best of ten sums over 256 MB."""
    cores = os.cpu_count() or 1
    parts, times = np.array_split(np.ones(1 << 26, np.float32), cores), []
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(10):
            start = time.perf_counter()
            list(pool.map(np.sum, parts))
            times.append(time.perf_counter() - start)
    return sum(part.nbytes for part in parts) / min(times) / 1e9
