"""Triton's driver on CuPy: device, stream and scratch memory are CuPy's. For Triton 3.6 to 3.9."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from statistics import median
from typing import Any

from triton import knobs
from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils
from triton.runtime import driver as active

from ....backends.kinds import cupy
from .chips import Chip
from .pointer import Pointer

_L2_BYTES = 256 << 20  # more than any GPU's second-level cache
_TIMED_MS, _TIMED_RUNS = 20.0, (5, 50)


class CupyDriver(CudaDriver):
    """Triton's NVIDIA driver, with CuPy in the place of PyTorch."""

    def __init__(self):  # without super().__init__(), which imports PyTorch
        runtime = cupy().cuda.runtime
        self.utils = CudaUtils()
        self.launcher_cls = CudaLauncher
        self.get_current_device, self.set_current_device = runtime.getDevice, runtime.setDevice

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return divmod(int(cupy().cuda.Device(device).compute_capability), 10)

    def get_current_stream(self, device: int) -> int:
        return cupy().cuda.get_current_stream().ptr

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int) -> Pointer:
        return Pointer(cupy().zeros(size, "int8"))

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError("mytorch runs Triton without PyTorch")

    get_device_interface = get_empty_cache_for_benchmark = get_active_torch_device


def choose_assembler(tools: Any) -> None:
    """Makes Triton 3.6 use the ptxas 12.9 that it has for Blackwell, unless TRITON_PTXAS_PATH is set.

    Its own for other GPUs, 12.8, gives some products of attention an address that nothing has set: wrong
    results, or an illegal memory access. Seen on an H200, with heads of 40 features whose values have 24.
    """
    if tools.ptxas.version == "12.8" and "TRITON_PTXAS_PATH" not in os.environ:
        tools.ptxas = tools.ptxas_blackwell.path


@functools.cache
def why_not() -> str:
    """Makes ours the driver of all Triton kernels in this process; returns why that fails, else ""."""
    choose_assembler(knobs.nvidia)
    try:
        active.set_active(CupyDriver())
    except (RuntimeError, OSError, AssertionError, subprocess.CalledProcessError) as error:
        return (
            "Triton can't build its launcher, for which it needs a C compiler and Python's headers "
            f"(Debian, Ubuntu: sudo apt install gcc python3-dev): {error}"
        )
    return ""


def device() -> int:
    """Returns the index of the current GPU."""
    return cupy().cuda.runtime.getDevice()


def stream() -> int:
    """Returns the address of the current stream."""
    return cupy().cuda.get_current_stream().ptr


def chip() -> Chip:
    """Returns the current GPU."""
    return _chip(device())


@functools.cache
def _chip(device: int) -> Chip:
    major, minor = active.active.get_device_capability(device)
    properties = active.active.utils.get_device_properties(device)
    return Chip(10 * major + minor, properties["multiprocessor_count"], properties["max_shared_mem"])


class Clock:
    """Measures the time of launches on the current GPU."""

    def name(self) -> str:
        """Returns the model of the GPU, for which measurements are valid."""
        return cupy().cuda.runtime.getDeviceProperties(cupy().cuda.runtime.getDevice())["name"].decode()

    def usable(self) -> bool:
        """Returns whether it can measure, which needs a stream that isn't being captured."""
        return not cupy().cuda.get_current_stream().is_capturing()

    def __call__(self, start: Callable[[], None]) -> float:
        """Returns the median time of a launch in ms, each with a cold cache.

        Flushing the cache takes longer than the host needs for a launch, so launches are queued in time.
        """
        start()  # compiles
        events, flush = cupy().cuda, cupy().empty(_L2_BYTES, "uint8")
        fewest, most = _TIMED_RUNS
        times: list[float] = []
        runs = fewest
        while len(times) < runs:
            pairs = [(events.Event(), events.Event()) for _ in range(runs - len(times))]
            for before, after in pairs:
                flush.fill(0)
                before.record()
                start()
                after.record()
            pairs[-1][1].synchronize()
            times += [events.get_elapsed_time(*pair) for pair in pairs]
            runs = min(most, max(fewest, int(_TIMED_MS / max(median(times), 1e-3))))
        return median(times)


@functools.cache
def clock() -> Clock:
    return Clock()
