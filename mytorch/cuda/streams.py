"""Streams, the queues of a GPU, and events, the marks in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..backends import device as devices
from ..backends.device import cupy
from .devices import index_of, on_gpu, set_device


class Stream:
    """A queue of work on a GPU: work in one stream runs in order, that of different streams may overlap.

    It doesn't wait for the default stream, nor that for it: see `wait_stream`. Memory that is freed may be
    handed out again at once to the stream that allocated it, whatever other streams still do with it.

    Args:
        device: the GPU; by default the current one.
        priority: below 0 for work that goes first; only CuPy 14 and later can do that.

    Raises:
        RuntimeError: a priority with CuPy 13.
    """

    def __init__(self, device: Any = None, priority: int = 0):
        options: dict[str, Any] = {"non_blocking": True}
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
        """The GPU that it belongs to."""
        return devices.cuda_device(self.device_index)

    @property
    def priority(self) -> int:
        """0 is the lowest."""
        return getattr(self._raw, "priority", 0)

    @property
    def cuda_stream(self) -> int:
        """The `cudaStream_t`, as a number."""
        return self._raw.ptr

    def query(self) -> bool:
        """Is all work done?"""
        with on_gpu(self.device_index):
            return self._raw.done

    def synchronize(self) -> None:
        """Wait until all work is done."""
        with on_gpu(self.device_index):
            self._raw.synchronize()

    def wait_event(self, event: Event) -> None:
        """Let all work from now on wait for an event; one that was never recorded is over."""
        if event._raw is not None:
            with on_gpu(self.device_index):
                self._raw.wait_event(event._raw)

    def wait_stream(self, stream: Stream) -> None:
        """Let all work from now on wait for what is in another stream now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Put an event (by default a new one) behind the work that is there, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: Any) -> bool:
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


def current_stream(device: Any = None) -> Stream:
    """The stream that work on a GPU goes to now, in this thread."""
    index = index_of(device)
    return _wrapped(cupy().cuda.get_current_stream(index), index)


def default_stream(device: Any = None) -> Stream:
    """The stream that work on a GPU goes to if nothing else was said."""
    return _wrapped(cupy().cuda.Stream.null, index_of(device))


def set_stream(stream: Stream) -> None:
    """Send the work of this thread to this stream, and make its GPU the current one. Better use `stream`."""
    set_device(stream.device_index)
    stream._raw.use()


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Context in which work goes to this stream, and its GPU is the current one; None changes nothing."""
    if stream is None:
        yield
        return
    with on_gpu(stream.device_index), stream._raw:
        yield


class Event:
    """A mark in a stream, to wait for or to measure time with.

    Args:
        enable_timing: so that `elapsed_time` can be asked.
        blocking: `synchronize` sleeps instead of spinning.
        interprocess: for several processes; without timing.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if interprocess and enable_timing:
            raise ValueError("Event(): an event for several processes has no timing")
        self._options = {
            "block": blocking, "disable_timing": not enable_timing, "interprocess": interprocess
        }  # fmt: skip
        self._raw, self._index = None, -1  # it is made on the GPU of the stream that it is first recorded in

    def record(self, stream: Stream | None = None) -> None:
        """Put it behind the work that is in the stream (default: the current one) now.

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
        """Let a stream (default: the current one) wait for it."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Is all work before it done?"""
        return self._raw is None or self._raw.done

    def synchronize(self) -> None:
        """Wait until all work before it is done."""
        if self._raw is not None:
            self._raw.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another one.

        Raises:
            ValueError: one of them was made without enable_timing, or wasn't recorded.
            RuntimeError: one of them isn't over yet.
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
