"""How much memory of a GPU is used: by arrays ("allocated"), and by CuPy's pool with what it keeps
("reserved").

CuPy knows both as they are now, but no peaks. For those a memory hook, which CuPy calls at every allocation,
looks at the pool. It costs time, so it is installed when a peak is asked for or reset for the first time, for
the thread that asks: from then on the peaks are exact, if that thread allocates. `reset_peak_memory_stats()`
before a step and `max_memory_allocated()` after it give the peak of the step.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ..backends import device as devices
from ..backends import graphs
from ..backends.device import cupy, is_available
from .devices import index_of, on_gpu

_HOOK = "mytorch.cuda.memory"


class _Usage(NamedTuple):
    allocated: int = 0
    reserved: int = 0


_peaks: dict[int, _Usage] = {}


def memory_allocated(device: Any = None) -> int:
    """Bytes of the arrays on a GPU; 0 without a GPU."""
    return _usage(device).allocated


def memory_reserved(device: Any = None) -> int:
    """Bytes that CuPy's pool has taken from a GPU: what arrays use, and what they left for the next ones."""
    return _usage(device).reserved


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays used at a time since `reset_peak_memory_stats`, or since the first call."""
    return _peak(device).allocated


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the pool held since `reset_peak_memory_stats`, or since the first call."""
    return _peak(device).reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin to look for the peaks anew."""
    _peak(device)
    _peaks[index_of(device)] = _usage(device)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Current and peak bytes by PyTorch's names, those that CuPy can tell; {} without a GPU."""
    if device is None and not is_available():
        return {}
    now, peak = _usage(device), _peak(device)
    return {
        "allocated_bytes.all.current": now.allocated,
        "allocated_bytes.all.peak": peak.allocated,
        "reserved_bytes.all.current": now.reserved,
        "reserved_bytes.all.peak": peak.reserved,
    }


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU, counting all processes."""
    with on_gpu(index_of(device)):
        return cupy().cuda.runtime.memGetInfo()


def empty_cache() -> None:
    """Give back to the GPUs what the pools hold and no array uses."""
    if not is_available():
        return
    for index in list(devices._CUDA):  # asking another GPU would set it up
        with on_gpu(index):
            for pool in _pools():
                pool.free_all_blocks()


def _pools() -> list:
    return [cupy().get_default_memory_pool(), *(pool.memory for pool in graphs.pools())]


def _usage(device: Any) -> _Usage:
    if device is None and not is_available():
        return _Usage()
    with on_gpu(index_of(device)):
        return _usage_here()


def _usage_here() -> _Usage:
    pools = _pools()
    return _Usage(sum(pool.used_bytes() for pool in pools), sum(pool.total_bytes() for pool in pools))


def _peak(device: Any) -> _Usage:
    """The peaks so far; from now on they are watched."""
    if device is None and not is_available():
        return _Usage()
    if _HOOK not in cupy().cuda.memory_hook.get_memory_hooks():
        _hook_class()().__enter__()
    with on_gpu(index_of(device)):
        return _look(index_of(device))


def _look(index: int) -> _Usage:
    """Update the peaks of the current GPU."""
    _peaks[index] = _Usage(*map(max, _usage_here(), _peaks.get(index, _Usage())))
    return _peaks[index]


@functools.cache
def _hook_class() -> type:
    class Peaks(cupy().cuda.MemoryHook):
        name = _HOOK

        def malloc_postprocess(self, *, device_id: int, mem_ptr: int, **facts: Any) -> None:
            if mem_ptr:
                _look(device_id)

    return Peaks
