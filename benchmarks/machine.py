"""What a measurement depends on: the processor, its load from other programs, memory, the BLAS kernels."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
import time
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_model() -> str:
    """The processor's name, with the cores that this process may use and the widest vectors that it has."""
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return f"{platform.processor() or platform.machine()} ({os.cpu_count()} cores)"
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = facts.get("flags", "").split()
    known = {"avx512f": ", AVX-512", "avx2": ", AVX2"}
    vectors = next((label for flag, label in known.items() if flag in flags), "")
    return f"{facts.get('model name', platform.machine())} ({len(os.sched_getaffinity(0))} cores{vectors})"


def total_busy_seconds() -> float | None:
    """Time since boot that the cores open to this process have not been idle; None without /proc/stat.

    Taken as clock minus idle: the kernel measures idle time exactly, while it samples the other columns.
    Time that a hypervisor gave to another machine counts as busy. Source: proc_stat(5).
    """
    try:
        lines = (PROC / "stat").read_text().splitlines()
    except FileNotFoundError:
        return None
    cores = os.sched_getaffinity(0)
    columns = {name: values for name, *values in (line.split() for line in lines)}
    idle = sum(int(columns[f"cpu{core}"][3]) + int(columns[f"cpu{core}"][4]) for core in cores)
    return time.clock_gettime(time.CLOCK_BOOTTIME) * len(cores) - idle / TICKS


def tree_busy_seconds(root: int) -> float:
    """CPU time of process `root` and its descendants, the ended ones included. Source: proc_pid_stat(5)."""
    parent, used = {}, {}
    for folder in PROC.glob("[0-9]*"):
        try:
            columns = (folder / "stat").read_text().rpartition(")")[2].split()  # the name may hold spaces
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we were reading
        parent[int(folder.name)] = int(columns[1])
        used[int(folder.name)] = sum(int(ticks) for ticks in columns[11:15])  # its own, its dead children's

    def descends(pid: int) -> bool:
        while pid not in (root, 0):
            pid = parent.get(pid, 0)
        return pid == root

    return sum(ticks for pid, ticks in used.items() if descends(pid)) / TICKS


def forget_peak_memory() -> bool:
    """Start this process's memory peak anew; False where that can't be. Source: proc_pid_clear_refs(5)."""
    try:
        (PROC / "self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    try:
        status = (PROC / "self/status").read_text()
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def openblas() -> dict[str, str]:
    """What the OpenBLAS of this process says of itself: kernel set ("SkylakeX", "Haswell", …) and threads.

    NumPy doesn't pass these on, so they are asked of the library that /proc/self/maps shows; else "unknown".
    """
    facts = {"core": "unknown", "threads": "unknown"}
    try:
        mapped = (PROC / "self/maps").read_text().splitlines()
    except FileNotFoundError:
        return facts
    path = next((line.split(maxsplit=5)[5] for line in mapped if "openblas" in line), None)
    if path is None:
        return facts
    library = ctypes.CDLL(path)
    for prefix in ("scipy_", ""):  # NumPy's wheels rename the functions, other builds don't
        for suffix in ("64_", ""):
            corename = getattr(library, f"{prefix}openblas_get_corename{suffix}", None)
            if corename is not None:
                corename.restype = ctypes.c_char_p
                threads = getattr(library, f"{prefix}openblas_get_num_threads{suffix}")
                return {"core": corename().decode(), "threads": str(threads())}
    return facts
