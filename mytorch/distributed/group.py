"""ProcessGroup: some ranks, the engines between them, and what watches over each of their operations."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import failure, recorder, watchdog
from .channel import Channel
from .engines import Request
from .environment import seconds
from .errors import DistTimeout
from .peer_watch import PeerWatch
from .polling import eager_for
from .work import Work


class ProcessGroup:
    """The ranks of a group.

    Args:
        name: "WORLD", or a number.
        ranks: the global rank of each member, in the group's order.
        rank: which of them this process is.
        backend: what `get_backend` says.
        host: the engine for arrays on the CPU.
        device: makes the engine for arrays on GPUs, when the first one comes.
        channel: compares what the ranks want; None where there is only one.
        timeout: of its operations, in seconds.
        log: the recorder of this process.
    """

    def __init__(
        self, name: str, ranks: tuple[int, ...], rank: int, backend: str, host: Any,
        device: Callable[[], Any], channel: Channel | None, timeout: float, log: recorder.Recorder,
    ):  # fmt: skip
        self.name, self.ranks, self._rank, self.backend = name, ranks, rank, backend
        self.channel, self.timeout, self.recorder = channel, timeout, log
        self.host, self._make_device, self._device = host, device, None
        self._count, self._peer_count = itertools.count(1), itertools.count(1)
        self._starting: int | None = None  # the record of what begins just now
        self._starting_for = 0.0
        self._outstanding: list[Work] = []

    def rank(self) -> int:
        """The rank of this process in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.name}, ranks={self.ranks}, backend={self.backend})"

    def engine_of(self, raw: Any) -> Any:
        """The engine that moves a raw array."""
        if isinstance(raw, np.ndarray):
            return self.host
        if self._device is None:
            self._device = self._make_device()
            if self._device is not self.host:  # nobody waits for what a GPU does
                watchdog.watch(self)
        return self._device

    def run(
        self,
        op: str,
        raw: Any,
        start: Callable[[Any], Request],
        detail: str = "",
        store: Callable[[], None] | None = None,
        shaped: bool = True,
        peers: tuple[int, ...] | None = None,
        timeout: float | None = None,
    ) -> Work:
        """Start an operation under watch.

        Args:
            op: its public name.
            raw: the array whose shape, dtype and device all ranks must agree on.
            start: gets the engine and starts the operation.
            detail: other arguments to agree on.
            store: what brings the result to where it belongs.
            shaped: whether the shapes must be the same.
            peers: whom a send or receive can be with: nobody compares it, and its tensors may differ.
            timeout: in seconds; by default the group's.
        """
        for work in self._outstanding[:]:
            work.is_completed()  # MPI moves on while it is asked
        counter = self._count if peers is None else self._peer_count
        seq, site = next(counter), recorder.call_site()
        shape, dtype = str(tuple(raw.shape)), str(raw.dtype)
        record = self.recorder.begin(seq, self.name, op, shape, dtype, site)
        comparison = watch = None
        on_cpu = isinstance(raw, np.ndarray)
        if self.channel is not None and peers is None:
            where = "cpu" if on_cpu else "cuda"
            wanted = f"{op}({shape if shaped else 'any shape'}, {dtype}, {where}{detail})"
            comparison = self.channel.compare(wanted, seq, site)
        elif self.channel is not None:
            watch = PeerWatch(self.channel, peers)
        pending, eager = self._start(record, raw, start), eager_for(raw.nbytes)
        work = Work(self, record, comparison, pending, store, watch, timeout, on_cpu, eager)
        self._outstanding.append(work)
        return work

    def _start(self, record: int, raw: Any, start: Callable[[Any], Request]) -> Request:
        """Start an operation under the watchdog's eyes: connecting to the others may block."""
        self._starting, self._starting_for = record, 0.0
        try:
            return start(self.engine_of(raw))
        except BaseException:
            self.recorder.end(record, recorder.FAILED)
            raise
        finally:
            self._starting = None

    def check(self, passed: float) -> None:
        """Look at what is under way, `passed` seconds after the last look; for the watchdog.

        Raises:
            DistTimeout: something is too late; it is given up.
            DistMismatch: the ranks don't agree.
        """
        if self._starting is not None:
            self._starting_for += passed
            if self._starting_for > self.timeout:
                raise DistTimeout(self.explain_timeout(self._starting, self.timeout))
        for work in self._outstanding[:]:
            if not work.is_completed() and work.age(passed) > work.timeout:
                raise work.give_up(work.timeout)

    def uses_gpu(self) -> bool:
        """Has an array on a GPU gone through it?"""
        return self._device is not None

    def together(self) -> contextlib.AbstractContextManager:
        """Context in which sends and receives begin at once, so that they may wait for each other."""
        return getattr(self._device, "together", contextlib.nullcontext)()

    def forget(self, work: Work) -> None:
        with contextlib.suppress(ValueError):  # the watchdog may have been here, too
            self._outstanding.remove(work)

    def timeout_of(self, timeout: Any) -> float:
        return self.timeout if timeout is None else seconds(timeout)

    def describe(self, record: int) -> str:
        """An operation of this rank, by the number of its record."""
        return f"rank {self.ranks[self._rank]}: {self.recorder.read(record)}"

    def explain_timeout(self, record: int, timeout: float) -> str:
        """What the ranks of the group were doing, when this one gave up an operation."""
        return failure.explain_timeout(
            self.ranks[self._rank], self.ranks, self.recorder.read(record), timeout
        )
