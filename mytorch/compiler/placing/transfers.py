"""Copies between devices, which threads and streams of their own make beside the program."""

from __future__ import annotations

import weakref
from concurrent.futures import Future

from ...backends.device import RawArray, device, device_of, move
from ...backends.kinds import GPU
from ...core.op import as_raw
from ...cuda.streams import Event, Stream, current_stream, stream
from ..parts.worker import Worker


class Transfers:
    """The copies of a program's runs: for each device that receives some a thread, and for a GPU a stream.

    What is sent and received lives until `finish`: then all streams have waited for each other, and its
    memory may be used again.
    """

    def __init__(self) -> None:
        self._workers: dict[int, Worker] = {}  # by the id of the device: several may have a name
        self._streams: dict[int, Stream] = {}
        self._held: list[tuple[RawArray, Future]] = []
        weakref.finalize(self, _close, self._workers)

    def begin(self, devices: list[device]) -> None:
        """Lets copies wait for what GPUs do now, which may use memory that copies will write to."""
        for target in [x for x in devices if x.kind is GPU]:
            found = self._streams.get(id(target)) or self._streams.setdefault(id(target), Stream(target))
            found.wait_stream(current_stream(target))

    def send(self, raw: RawArray, target: device) -> Future:
        """Returns the future of a copy in C order, which `received` takes."""
        raw = as_raw(raw)
        raw, source = raw if raw.flags.c_contiguous else raw.copy(), device_of(raw)
        made = current_stream(source).record_event() if source.kind is GPU else None
        if id(target) not in self._workers:
            self._workers[id(target)] = Worker(f"to {target.full_name}")
        copies = self._streams.get(id(target)) or self._streams.get(id(source))
        future = self._workers[id(target)].submit(_copied, raw, target, made, copies)
        self.hold(raw, future)
        return future

    def hold(self, raw: RawArray, future: Future) -> None:
        """Keeps an array and its copy, which devices may still read, alive until `finish`."""
        self._held.append((raw, future))

    def received(self, future: Future) -> RawArray:
        """Returns a copy once it is there; a GPU waits for it, and Python doesn't."""
        copy, done = future.result()
        _wait(done, copy)
        return copy

    def finish(self) -> None:
        """Lets devices wait for all copies of what lies on them."""
        for raw, future in self._held:
            _wait(future.result()[1], raw)
        self._held.clear()

    def abandon(self) -> None:
        """Ends the threads, after an error."""
        _close(self._workers)
        self._held.clear()


def _copied(
    raw: RawArray, target: device, made: Event | None, copies: Stream | None
) -> tuple[RawArray, Event | None]:
    """Returns an array on another device, and the event after which it is there."""
    if copies is None:
        return move(raw, target), None
    if made is not None:
        copies.wait_event(made)
    with stream(copies):
        return move(raw, target), copies.record_event()


def _wait(done: Event | None, raw: RawArray) -> None:
    """Lets the device of an array wait for an event."""
    if done is not None and (found := device_of(raw)).kind is GPU:
        done.wait(current_stream(found))


def _close(workers: dict[int, Worker]) -> None:
    for worker in workers.values():
        worker.close(wait=False)
    workers.clear()
