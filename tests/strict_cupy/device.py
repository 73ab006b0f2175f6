"""GPUs that aren't there: the current device, streams, events, memory pointers and the CUDA runtime.

Devices can't reach each other's memory (no peer access), so a kernel on the wrong device raises.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

_ERRORS = {
    1: "cudaErrorInvalidValue: invalid argument",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    400: "cudaErrorInvalidResourceHandle: invalid resource handle",
    712: "cudaErrorHostMemoryAlreadyRegistered: part or all of the requested memory range is already mapped",
    713: "cudaErrorHostMemoryNotRegistered: pointer does not correspond to a registered memory region",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture",
}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int):
        self.status = status
        super().__init__(_ERRORS[status])


class _State(threading.local):
    """The current device and stream, and those to go back to: every thread has its own."""

    def __init__(self):
        self.device = 0
        self.stream: Any = None
        self.previous: list = []


_state = _State()
_count = 2
registered: dict[int, int] = {}  # host memory that was locked by hostRegister: sizes by address


def reset(count: int) -> None:
    """Start again with `count` GPUs, and device 0 as the current one."""
    global _count, _state
    _count, _state = count, _State()
    registered.clear()


def get_device_count() -> int:
    if _count == 0:
        raise CUDARuntimeError(100)
    return _count


def get_device() -> int:
    get_device_count()
    return _state.device


def set_device(index: int) -> None:
    if not 0 <= index < get_device_count():
        raise CUDARuntimeError(101)
    _state.device = index


class Device:
    """A GPU; `with Device(1):` makes it the current one."""

    def __init__(self, device: int | Device | None = None):
        self.id = get_device() if device is None else int(device)

    def __int__(self):
        return self.id

    def __enter__(self):
        previous = get_device()
        set_device(self.id)
        _state.previous.append(previous)
        return self

    def __exit__(self, *error):
        set_device(_state.previous.pop())

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    __hash__ = None

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    def use(self):
        set_device(self.id)
        return self

    def synchronize(self):
        synchronize()

    mem_info = property(lambda self: runtime["memGetInfo"]())
    compute_capability = "90"
    pci_bus_id = property(lambda self: f"0000:{self.id:02X}:00.0")


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False):
        self._time, self._device = None, get_device()

    done = True

    def record(self, stream: Any = None):
        if self._device != get_device():
            raise CUDARuntimeError(400)
        self._time = time.perf_counter()

    def synchronize(self):
        synchronize()


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds between two recorded events."""
    return 1000 * (end._time - start._time)


class Stream:
    """A queue of work. The stand-in works at once, so there is nothing to wait for."""

    done = True

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False):
        self.ptr = 0 if null else id(self)
        self.device_id = -1 if null else get_device()
        self.tape = None

    def __enter__(self):
        self._check_device()
        _state.previous.append(get_current_stream())
        _state.stream = self
        return self

    def __exit__(self, *error):
        _state.stream = _state.previous.pop()

    def use(self):
        self._check_device()
        _state.stream = self
        return self

    def _check_device(self):
        if self.device_id not in (-1, get_device()):
            raise RuntimeError(f"a stream of device {self.device_id}, the current one is {get_device()}")

    def synchronize(self):
        synchronize()

    def wait_event(self, event: Event):
        self._check_device()

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def launch_host_func(self, callback: Any, arg: Any):
        callback(arg)

    def is_capturing(self):
        return self.tape is not None

    def begin_capture(self, mode: Any = None):
        from . import graph  # it needs this module first

        graph.begin(self)

    def end_capture(self):
        from . import graph

        return graph.end(self)


Stream.null = Stream(null=True)


def get_current_stream(device_id: int = -1) -> Stream:
    return _state.stream or Stream.null


def synchronize() -> None:
    """All work is done at once; only a capture can't wait."""
    from . import graph

    graph.refuse_waiting()


class MemoryPointer:
    """An address, with the array or buffer that keeps it alive; `pointer + 16` is 16 bytes further."""

    def __init__(self, mem: Any, offset: int = 0):
        self.mem = mem
        self.ptr = mem.ptr + offset
        self.device_id = mem.device_id

    device = property(lambda self: Device(self.device_id))

    def __add__(self, offset: int):
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __int__(self):
        return self.ptr


class UnownedMemory:
    """Memory that something else owns: `size` bytes at `ptr`."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1):
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = get_device() if device_id == -1 else device_id
        self.device = Device(self.device_id)


def alloc(size: int) -> MemoryPointer:
    buffer = np.empty(size, np.uint8)
    return MemoryPointer(UnownedMemory(buffer.ctypes.data, size, buffer))


class PinnedMemoryPointer(bytearray):
    """Page-locked host memory, here plain memory; `np.frombuffer` reads and writes it."""

    ptr = property(lambda self: np.frombuffer(self, np.uint8).ctypes.data)

    def size(self):
        return len(self)


def host_register(ptr: int, size: int, flags: int) -> None:
    """Lock memory that is there already; no part of it may be locked."""
    get_device_count()
    if not ptr or size <= 0 or not 0 <= flags < 16:
        raise CUDARuntimeError(1)
    if any(ptr < start + length and start < ptr + size for start, length in registered.items()):
        raise CUDARuntimeError(712)
    registered[ptr] = size


def host_unregister(ptr: int) -> None:
    """Unlock it; `ptr` must be its beginning."""
    get_device_count()
    if ptr not in registered:
        raise CUDARuntimeError(713)
    del registered[ptr]


_properties = {
    "name": b"strict CuPy stand-in",
    "major": 9,
    "minor": 0,
    "totalGlobalMem": 1 << 34,
    "multiProcessorCount": 132,
    "sharedMemPerBlock": 48 * 1024,
    "sharedMemPerBlockOptin": 227 * 1024,
    "sharedMemPerMultiprocessor": 228 * 1024,
    "regsPerMultiprocessor": 65536,
    "maxThreadsPerMultiProcessor": 2048,
    "l2CacheSize": 50 << 20,
    "integrated": 0,
    "isMultiGpuBoard": 0,
    "warpSize": 32,
}
runtime = {
    "CUDARuntimeError": CUDARuntimeError,
    "getDeviceCount": get_device_count,
    "getDevice": get_device,
    "setDevice": set_device,
    "getDeviceProperties": lambda device: dict(_properties),
    "deviceSynchronize": synchronize,
    "deviceCanAccessPeer": lambda device, peer: 0,
    "streamSynchronize": lambda stream: None,
    "hostRegister": host_register,
    "hostUnregister": host_unregister,
    "memGetInfo": lambda: (1 << 34, 1 << 34),
    "runtimeGetVersion": lambda: 12090,
    "driverGetVersion": lambda: 13000,
    "is_hip": False,
    "streamLegacy": 1,
    "streamPerThread": 2,
    "streamCaptureModeGlobal": 0,
    "streamCaptureModeThreadLocal": 1,
    "streamCaptureModeRelaxed": 2,
}
