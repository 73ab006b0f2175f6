"""The GPU under the names by which PyTorch's programs ask for whatever accelerator there is."""

from __future__ import annotations

from mytorch import cuda
from mytorch.backends.device import device
from mytorch.cuda import current_device as current_device_index
from mytorch.cuda import (
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    synchronize,
)
from mytorch.cuda import set_device as set_device_index

__all__ = [
    "current_accelerator", "current_device_index", "device_count", "empty_cache", "is_available",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device_index", "synchronize",
]


def current_accelerator(check_available: bool = False) -> device | None:
    """Returns the device "cuda", or None without a GPU.

    Args:
        check_available: without effect: a GPU is only one that is there.
    """
    return device("cuda") if cuda.is_available() else None
