"""The worker process: receives indices, loads their samples and writes the batch to shared memory."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from ...backends import threads
from ..parent_death import die_with_parent, exit_with_parent
from .dataset import WorkerInfo, set_worker_info
from .fetch import Fetcher, Recipe, StreamEnded, describe
from .ring import Ring, map_status
from .sampler import set_epoch
from .seeding import Seeder, mix

BATCH, ERROR, END = range(3)
# Kind of the answer; block, size of the block, offset and size of the batch in the block.
# Answers have a small fixed size, so that sending one never blocks.
ANSWER = struct.Struct("<qqqqq")
_PARENT_CHECK = 1.0  # seconds between checks that the parent is alive; forked siblings keep its pipe open


@dataclass(frozen=True)
class Job:
    """The arguments of a worker; with `spawn` they are pickled once, with the dataset.

    Attributes:
        from_lasting_thread: the thread that starts the worker lasts as long as its process.
    """

    recipe: Recipe
    id: int
    num_workers: int
    seed: int
    epoch: int
    init_fn: Callable[[int], None] | None
    from_lasting_thread: bool = False


@dataclass(frozen=True)
class Begin:
    """The message that begins a pass.

    Attributes:
        seed: of the random numbers of the samples; that of a state that was loaded isn't the job's.
        set_epoch: the argument of the last `DataLoader.set_epoch`, for the dataset.
        state: the state of the stream to continue from.
    """

    seed: int
    epoch: int
    set_epoch: int | None
    state: dict | None


@dataclass(frozen=True)
class Failure:
    """An exception as text, and the names of its class and bases, which the parent may not have imported."""

    classes: list[tuple[str, str]]
    text: str
    location: str


def work(connection: Connection, job: Job) -> None:
    """Answers requests until the parent closes the connection or has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process group; the parent handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threads.set_num_threads(1)  # the other cores are for the other workers
    parent = _parent()
    if job.from_lasting_thread and not _is_served():
        die_with_parent(parent)
    else:
        owner = multiprocessing.parent_process()
        exit_with_parent(lambda: os.getppid() != parent or not owner.is_alive())
    try:
        if _receives(connection, parent):
            _Worker(connection, job, recv_handle(connection), parent).serve()
    except (EOFError, ConnectionError):
        return


def _parent() -> int:
    """Returns the id of the process whose death ends this one: that which `os.getppid()` names until then.

    It may have died already, so `os.getppid()` can't be asked, but for a server that forks.
    """
    return os.getppid() if _is_served() else multiprocessing.parent_process().pid


def _is_served() -> bool:
    """Returns whether a server forked this process, at the request of the one that owns the loader."""
    return type(multiprocessing.current_process()).__name__ == "ForkServerProcess"


def _receives(connection: Connection, parent: int) -> bool:
    """Waits for a message; returns False if the parent died."""
    while not connection.poll(_PARENT_CHECK):
        if os.getppid() != parent:
            return False
    return True


class _Worker:
    """The state of a worker.

    Attributes:
        status: (number of requests begun, of requests answered, …, position in the batch), shared memory that
            the parent can read.
        failure: the answer to all requests of a pass whose beginning failed.
    """

    def __init__(self, connection: Connection, job: Job, fd: int, parent: int):
        self.connection, self.job, self.status, self.ring = connection, job, map_status(fd), Ring(fd)
        self.parent = parent
        self.fetch: Fetcher | None = None
        self.failure = self._start()
        self.is_broken = self.failure is not None

    def _start(self) -> Failure | None:
        job = self.job
        seeder = Seeder(job.seed, job.epoch)
        seeder.install()
        seeder.sample(None, job.id)
        dataset = getattr(job.recipe.dataset, "__wrapped__", job.recipe.dataset)
        set_worker_info(WorkerInfo(job.id, job.num_workers, mix(job.seed, job.id) >> 1, dataset))
        try:
            if job.init_fn is not None:
                job.init_fn(job.id)
        except Exception as error:
            return _failure(error, "its worker_init_fn")
        return None

    def serve(self) -> None:
        """Answers requests in order."""
        while _receives(self.connection, self.parent):
            freed, *message = pickle.loads(self.connection.recv_bytes())
            self.ring.release(freed)
            if isinstance(message[0], Begin):
                self._begin(message[0])
            else:
                self._answer(*message)

    def _begin(self, begin: Begin) -> None:
        if self.is_broken:
            return
        recipe, self.failure = self.job.recipe, None
        seeder = Seeder(begin.seed, begin.epoch, recipe.is_random)
        seeder.install()
        try:
            if begin.set_epoch is not None:
                set_epoch(recipe.dataset, begin.set_epoch)
            options = {"progress": self.status, "collating": self.ring.collating}
            self.fetch = recipe.fetcher(seeder, self.job.id, begin.state, **options)
        except Exception as error:
            self.failure = _failure(error, "the start of its dataset")

    def _answer(self, number: int, indices: object) -> None:
        self.status[-1] = 0
        self.status[0] += 1
        kind, value = self._load(number, indices)
        try:
            self._send(kind, value)
        except ConnectionError:
            raise
        except Exception as error:
            self._send(ERROR, (_failure(error, f"batch {number}, to send it"), None))
        self.status[1] = self.status[0]

    def _load(self, number: int, indices: object) -> tuple[int, object]:
        """Returns BATCH and (batch, state of the stream), ERROR and (failure, None), or END and None."""
        if self.failure is not None:
            return ERROR, (self.failure, None)
        try:
            batch = self.fetch(number, indices)
            return BATCH, (batch, self.fetch.state())
        except StreamEnded:
            return END, None
        except Exception as error:
            sample = describe(self.job.recipe.is_iterable, indices, self.status[-1])
            return ERROR, (_failure(error, f"{sample}, in batch {number}"), None)

    def _send(self, kind: int, value: object) -> None:
        if kind != BATCH:  # no collate_fn has reserved a block
            with self.ring.collating():
                pass
        self.connection.send_bytes(ANSWER.pack(kind, *self.ring.write(value)))


def _failure(error: BaseException, location: str) -> Failure:
    classes = [(kind.__module__, kind.__qualname__) for kind in type(error).__mro__]
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(classes, text, location)
