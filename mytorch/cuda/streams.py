"""Streams, the queues of a GPU, and events, the marks in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..backends import device as devices
from ..backends.kinds import cupy, waited
from .devices import index_of, on_gpu, set_device


class Stream:
    """A queue of work on a GPU: work in one stream runs in order, that of different streams may overlap.

    It isn't synchronized with the default stream: see `wait_stream`. Freed memory may be reused at once by
    the stream that allocated it, even if other streams still use it.

    Args:
        device: the GPU; by default the current one.
        priority: below 0 for a higher priority; needs CuPy 14 or later.

    Raises:
        RuntimeError: a priority with CuPy 13.
    """

    def __init__(self, device: devices.device | str | int | None = None, priority: int = 0):
        options: dict[str, object] = {"non_blocking": True}
        if priority:
            version = cupy().__version__
            if int(version.split(".")[0]) < 14:
                raise RuntimeError(f"Stream(priority={priority}) needs CuPy 14, this is {version}")
            options["priority"] = priority
        self.device_index = index_of(device)
        with on_gpu(self.device_index):
            self._raw = cupy().cuda.Stream(**options)

    @property
    def device(self) -> devices.device:
        """The GPU of the stream."""
        return devices.cuda_device(self.device_index)

    @property
    def priority(self) -> int:
        """The priority; 0 is the lowest."""
        return getattr(self._raw, "priority", 0)

    @property
    def cuda_stream(self) -> int:
        """The `cudaStream_t`, as an integer."""
        return self._raw.ptr

    def query(self) -> bool:
        """Returns whether all work is done."""
        with on_gpu(self.device_index):
            return self._raw.done

    def synchronize(self) -> None:
        """Waits until all work is done; raises what `cuda.synchronize` does."""
        with on_gpu(self.device_index):
            self._raw.synchronize()
        waited()

    def wait_event(self, event: Event) -> None:
        """Makes all future work wait for an event; returns at once for one that was never recorded."""
        if event._raw is not None:
            with on_gpu(self.device_index):
                self._raw.wait_event(event._raw)

    def wait_stream(self, stream: Stream) -> None:
        """Makes all future work wait for the work that is now in another stream."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event (by default a new one) after the work submitted so far, and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.device_index, self.cuda_stream) == (other.device_index, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<mytorch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


def _wrapped(raw: Any, index: int) -> Stream:
    stream = object.__new__(Stream)
    stream._raw, stream.device_index = raw, index
    return stream


def current_stream(device: devices.device | str | int | None = None) -> Stream:
    """Returns the current stream of a GPU, in this thread."""
    index = index_of(device)
    return _wrapped(cupy().cuda.get_current_stream(index), index)


def default_stream(device: devices.device | str | int | None = None) -> Stream:
    """Returns the default stream of a GPU."""
    return _wrapped(cupy().cuda.Stream.null, index_of(device))


def set_stream(stream: Stream) -> None:
    """Sets the current stream of this thread, and makes its GPU the current one; prefer `stream`."""
    set_device(stream.device_index)
    stream._raw.use()


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Context in which this is the current stream, and its GPU the current one; None changes nothing."""
    if stream is None:
        yield
        return
    with on_gpu(stream.device_index), stream._raw:
        yield


class Event:
    """A marker in a stream, to wait for or to measure time with.

    Args:
        enable_timing: for `elapsed_time`.
        blocking: `synchronize` sleeps instead of spinning.
        interprocess: for several processes; excludes timing.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if interprocess and enable_timing:
            raise ValueError("Event(): an event for several processes has no timing")
        self._options = {
            "block": blocking, "disable_timing": not enable_timing, "interprocess": interprocess
        }
        self._raw, self._index = None, -1  # created on the GPU of the stream that it is first recorded in

    def record(self, stream: Stream | None = None) -> None:
        """Records the event after the work submitted so far to the stream (default: the current one).

        Raises:
            RuntimeError: it was recorded on another GPU before.
        """
        stream = current_stream() if stream is None else stream
        with on_gpu(stream.device_index):
            if self._raw is None:
                self._raw, self._index = cupy().cuda.Event(**self._options), stream.device_index
            if self._index != stream.device_index:
                raise RuntimeError(f"Event.record(): the event is on cuda:{self._index}, got {stream}")
            self._raw.record(stream._raw)

    def wait(self, stream: Stream | None = None) -> None:
        """Makes a stream (default: the current one) wait for the event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Returns whether all work before the event is done."""
        return self._raw is None or self._raw.done

    def synchronize(self) -> None:
        """Waits until all work before the event is done; raises what `cuda.synchronize` does."""
        if self._raw is not None:
            self._raw.synchronize()
            waited()

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds from this event to another one.

        Raises:
            ValueError: one of them has no enable_timing, or wasn't recorded.
            RuntimeError: one of them isn't complete yet.
        """
        for event in (self, end_event):
            if event._options["disable_timing"]:
                raise ValueError("elapsed_time(): both events must be made with enable_timing=True")
            if event._raw is None:
                raise ValueError("elapsed_time(): both events must be recorded before")
            if not event.query():
                raise RuntimeError("elapsed_time(): both events must be over, call synchronize() first")
        return cupy().cuda.get_elapsed_time(self._raw, end_event._raw)

    def __repr__(self) -> str:
        return f"<mytorch.cuda.Event {'not recorded' if self._raw is None else f'on cuda:{self._index}'}>"
