"""A worker process: it waits for indices, loads their samples, and writes the batch into its ring."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from mmap import PAGESIZE, mmap
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from ...backends import threads
from . import worker_info
from .fetch import Recipe, StreamEnded, make_fetcher, place_name
from .ring import Ring
from .sampler import set_epoch
from .seeding import Seeder, mix
from .worker_info import WorkerInfo

BATCH, ERROR, END = range(3)
# request, what it is, block, size of the block if it is new (else 0), the one it replaces, offset, size.
# Answers have this one small size, so a worker never waits for the parent to read them.
ANSWER = struct.Struct("<qqqqqqq")
_PARENT_CHECK = 5.0  # seconds: an orphan whose pipe was inherited by somebody else notices by itself

parents_ends: weakref.WeakSet[Connection] = weakref.WeakSet()  # of all pools of this process


@dataclass(frozen=True)
class Job:
    """What a worker gets when it starts; with `spawn` the dataset in it is pickled, once."""

    recipe: Recipe
    id: int
    num_workers: int
    seed: int
    epoch: int
    init_fn: Callable[[int], None] | None


@dataclass(frozen=True)
class Begin:
    """Begin a pass.

    Attributes:
        asked_epoch: what `DataLoader.set_epoch` was called with, for the dataset.
        state: of the stream, to go on from.
    """

    epoch: int
    asked_epoch: int | None
    state: dict | None


@dataclass(frozen=True)
class Failure:
    """An exception in words, and the names of its class and bases: the parent may not know the class."""

    classes: list[tuple[str, str]]
    text: str
    place: str


def work(connection: Connection, job: Job) -> None:
    """The life of a worker: until the parent closes the connection, or is gone."""
    _settle()
    status = mmap(fd := recv_handle(connection), PAGESIZE)
    os.close(fd)
    try:
        _Worker(connection, job, memoryview(status).cast("q")).serve()
    except (EOFError, ConnectionError):
        return


def _settle() -> None:
    """Leave the parent's signals, pipes and threads to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for connection in list(parents_ends):  # inherited by fork; else other workers outlive the parent
        connection.close()
    threads.set_num_threads(1)  # the cores are for the workers beside this one


class _Worker:
    def __init__(self, connection: Connection, job: Job, status: memoryview):
        self.connection, self.job, self.status = connection, job, status
        self.ring, self.queue, self.parent = Ring(), deque(), os.getppid()
        self.fetch: Any = None
        self.failure: Failure | None = None  # what every request is answered with
        self.is_broken = False
        status[0] = -1
        self._start()

    def _start(self) -> None:
        job = self.job
        seeder = Seeder(job.seed, job.epoch)
        seeder.install()
        seeder.sample(None, job.id)
        seed = mix(job.seed, job.id) >> 1
        dataset = getattr(job.recipe.dataset, "__wrapped__", job.recipe.dataset)
        worker_info.current = WorkerInfo(job.id, job.num_workers, seed, dataset)
        if job.init_fn is not None:
            try:
                job.init_fn(job.id)
            except Exception as error:
                self.failure, self.is_broken = _failure(error, "its worker_init_fn"), True

    def serve(self) -> None:
        """Do what is asked, in order; a new pass goes before what is left of the last one."""
        while True:
            while not self.queue or self.connection.poll():
                while not self.connection.poll(_PARENT_CHECK):
                    if os.getppid() != self.parent:
                        return
                freed, *message = pickle.loads(self.connection.recv_bytes())
                self.ring.release(freed)
                if isinstance(message[0], Begin):
                    self.queue.clear()
                self.queue.append(message)
            message = self.queue.popleft()
            if isinstance(message[0], Begin):
                self._begin(message[0])
            else:
                self._answer(*message)

    def _begin(self, begin: Begin) -> None:
        if self.is_broken:
            return
        self.failure = None
        seeder = Seeder(self.job.seed, begin.epoch)
        seeder.install()
        try:
            if begin.asked_epoch is not None:
                set_epoch(self.job.recipe.dataset, begin.asked_epoch)
            self.fetch = make_fetcher(
                self.job.recipe, seeder, self.job.id, begin.state,
                progress=self.status, collating=self.ring.collating,
            )  # fmt: skip
        except Exception as error:
            self.failure = _failure(error, "the start of its dataset")

    def _answer(self, request: int, number: int, indices: Any) -> None:
        self.status[-1] = 0
        self.status[0] = request
        kind, value = self._load(number, indices)
        try:
            self._send(request, kind, value)
        except Exception as error:
            if isinstance(error, ConnectionError):
                raise
            self._send(request, ERROR, (_failure(error, f"batch {number}, to send it"), None))
        self.status[0] = -1

    def _load(self, number: int, indices: Any) -> tuple[int, Any]:
        """BATCH and (batch, state of the stream), ERROR and (failure, None), or END and None."""
        if self.failure is not None:
            return ERROR, (self.failure, None)
        try:
            batch = self.fetch(number, indices)
            return BATCH, (batch, self.fetch.state())
        except StreamEnded:
            return END, None
        except Exception as error:
            name = place_name(self.job.recipe.is_iterable, indices, self.status[-1])
            return ERROR, (_failure(error, f"{name}, in batch {number}"), None)

    def _send(self, request: int, kind: int, value: Any) -> None:
        ring = self.ring
        if kind != BATCH:  # nothing was collated that would have chosen a block
            with ring.collating():
                pass
        offset, size = ring.write(value)
        new = ring.created
        self.connection.send_bytes(
            ANSWER.pack(request, kind, ring.current, new[1] if new else 0, ring.dropped, offset, size)
        )
        if new is not None:
            send_handle(self.connection, new[2], self.parent)
            os.close(new[2])


def _failure(error: BaseException, place: str) -> Failure:
    classes = [(kind.__module__, kind.__qualname__) for kind in type(error).__mro__]
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(classes, text, place)
