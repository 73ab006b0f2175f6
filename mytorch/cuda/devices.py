"""The GPUs of this machine, their properties, and the current one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backends import device as devices
from ..backends.device import CPU, as_device, is_available, on
from ..backends.kinds import cupy, waited

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    DeviceLike = devices.device | str | int | None


def index_of(device: DeviceLike = None) -> int:
    """Returns the index of a GPU; None means the current one.

    Raises:
        ValueError: for the CPU.
        RuntimeError: no such GPU.
    """
    found = as_device("cuda" if device is None else device)
    if found is CPU:
        raise ValueError(f"expected a cuda device, got {str(device)!r}")
    return found.index


def current_device() -> int:
    """Returns the index of the current GPU, the one of device "cuda"."""
    return index_of()


def set_device(device: DeviceLike) -> None:
    """Sets the current GPU of this thread; a negative number changes nothing."""
    if not _is_negative(device):
        cupy().cuda.Device(index_of(device)).use()


def _is_negative(device: DeviceLike) -> bool:
    return isinstance(device, int) and device < 0


class device:  # noqa: N801 - PyTorch's name
    """Context in which this GPU is the current one; None or a negative number changes nothing.

    Args:
        device: "cuda:N", a `mytorch.device`, or a number.
    """

    def __init__(self, device: DeviceLike):
        self.idx = -1 if device is None or _is_negative(device) else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *error: object) -> None:
        set_device(self.prev_idx)


class device_of(device):  # noqa: N801 - PyTorch's name
    """Context in which the GPU of a tensor is the current one; a tensor on the CPU changes nothing."""

    def __init__(self, obj: Tensor):
        super().__init__(None if obj.device.type == "cpu" else obj.device)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work on a GPU (default: the current one) is done.

    Raises:
        IndexError, RuntimeError: an index that a GPU has found to be out of bounds.
    """
    cupy().cuda.Device(index_of(device)).synchronize()
    waited()


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a GPU; sizes are in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: bool
    is_multi_gpu_board: bool


_CUDA_NAMES = {
    "major": "major", "minor": "minor", "total_memory": "totalGlobalMem",
    "multi_processor_count": "multiProcessorCount", "warp_size": "warpSize",
    "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "regs_per_multiprocessor": "regsPerMultiprocessor", "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor", "L2_cache_size": "l2CacheSize",
}


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Returns name, compute capability, memory and multiprocessors of a GPU."""
    facts = cupy().cuda.runtime.getDeviceProperties(index_of(device))
    return DeviceProperties(
        name=facts["name"].decode(),
        is_integrated=bool(facts["integrated"]),
        is_multi_gpu_board=bool(facts["isMultiGpuBoard"]),
        **{ours: facts[theirs] for ours, theirs in _CUDA_NAMES.items()},
    )


def get_device_name(device: DeviceLike = None) -> str:
    """Returns the name of a GPU, such as "NVIDIA H200"."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Returns the compute capability of a GPU: (9, 0) for Hopper."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns whether the GPU has bfloat16; False without a GPU.

    Args:
        including_emulation: False for whether its tensor cores compute with it, as from Ampere on.
    """
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Returns whether one GPU can access the memory of another."""
    return bool(cupy().cuda.runtime.deviceCanAccessPeer(index_of(device), index_of(peer_device)))


def on_gpu(index: int) -> AbstractContextManager:
    """Context in which the GPU of this index is the current one."""
    return on(as_device(index))
