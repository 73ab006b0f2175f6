"""The GPUs that CuPy finds, as in PyTorch: `mytorch.cuda.is_available()` can be asked without a GPU, too."""

from __future__ import annotations

from .device import as_device, cupy, device_count, is_available

__all__ = ["current_device", "device_count", "is_available", "synchronize"]


def current_device() -> int:
    """The number of the GPU that "cuda" means."""
    return as_device("cuda").index


def synchronize(device: int | str | None = None) -> None:
    """Wait until the GPU (default: the current one) has done all the work it was given."""
    cupy().cuda.Device(as_device("cuda" if device is None else device).index).synchronize()
