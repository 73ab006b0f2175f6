"""
The memory of a GPU: that of arrays ("allocated"), and that of CuPy's pool, including free blocks
("reserved").

CuPy has the current values, but no peaks. For these a memory hook, which CuPy calls at every allocation,
reads the pool. It costs time, so it is installed when a peak is read or reset for the first time, in that
thread: from then on the peaks are exact for allocations of that thread. With `reset_peak_memory_stats()`
before a step, `max_memory_allocated()` after it returns the peak of the step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ..backends import device as devices
from ..backends import graphs
from ..backends.device import is_available
from ..backends.kinds import cupy
from .devices import index_of, on_gpu

_HOOK = "mytorch.cuda.memory"


class _Usage(NamedTuple):
    allocated: int = 0
    reserved: int = 0


_peaks: dict[int, _Usage] = {}


def memory_allocated(device: devices.device | str | int | None = None) -> int:
    """Returns the bytes of the arrays on a GPU; 0 without a GPU."""
    return _usage(device).allocated


def memory_reserved(device: devices.device | str | int | None = None) -> int:
    """Returns the bytes that CuPy's pool holds: those of arrays, and of free blocks."""
    return _usage(device).reserved


def max_memory_allocated(device: devices.device | str | int | None = None) -> int:
    """Returns the peak of `memory_allocated` since `reset_peak_memory_stats`, or since the first call."""
    return _peak(device).allocated


def max_memory_reserved(device: devices.device | str | int | None = None) -> int:
    """Returns the peak of `memory_reserved` since `reset_peak_memory_stats`, or since the first call."""
    return _peak(device).reserved


def reset_peak_memory_stats(device: devices.device | str | int | None = None) -> None:
    """Resets the peaks to the current values."""
    _peak(device)
    _peaks[index_of(device)] = _usage(device)


def memory_stats(device: devices.device | str | int | None = None) -> dict[str, int]:
    """Returns current and peak bytes by PyTorch's names, as far as CuPy has them; {} without a GPU."""
    if device is None and not is_available():
        return {}
    now, peak = _usage(device), _peak(device)
    return {
        "allocated_bytes.all.current": now.allocated,
        "allocated_bytes.all.peak": peak.allocated,
        "reserved_bytes.all.current": now.reserved,
        "reserved_bytes.all.peak": peak.reserved,
    }


def mem_get_info(device: devices.device | str | int | None = None) -> tuple[int, int]:
    """Returns (free, total) bytes of a GPU, over all processes."""
    with on_gpu(index_of(device)):
        return cupy().cuda.runtime.memGetInfo()


def empty_cache() -> None:
    """Returns the free blocks of the pools to the GPUs."""
    if not is_available():
        return
    for index in list(devices._CUDA):  # a context is created on any other GPU
        with on_gpu(index):
            for pool in _pools():
                pool.free_all_blocks()


def _pools() -> list:
    return [cupy().get_default_memory_pool(), *(pool.memory for pool in graphs.pools())]


def _usage(device: devices.device | str | int | None) -> _Usage:
    if device is None and not is_available():
        return _Usage()
    with on_gpu(index_of(device)):
        return _current_usage()


def _current_usage() -> _Usage:
    pools = _pools()
    return _Usage(sum(pool.used_bytes() for pool in pools), sum(pool.total_bytes() for pool in pools))


def _peak(device: devices.device | str | int | None) -> _Usage:
    """Returns the peaks so far, and installs the hook."""
    if device is None and not is_available():
        return _Usage()
    if _HOOK not in cupy().cuda.memory_hook.get_memory_hooks():
        _hook_class()().__enter__()
    with on_gpu(index_of(device)):
        return _update_peaks(index_of(device))


def _update_peaks(index: int) -> _Usage:
    """Updates the peaks of the current GPU."""
    _peaks[index] = _Usage(*map(max, _current_usage(), _peaks.get(index, _Usage())))
    return _peaks[index]


@functools.cache
def _hook_class() -> type:
    class Peaks(cupy().cuda.MemoryHook):
        name = _HOOK

        def malloc_postprocess(self, *, device_id: int, mem_ptr: int, **facts: object) -> None:
            if mem_ptr:
                _update_peaks(device_id)

    return Peaks
