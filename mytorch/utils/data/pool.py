"""The parent's side of the workers: starts them, hands out work, notices who died, and ends them."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import sys
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field, replace
from mmap import PAGESIZE, mmap
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from .fetch import place_name
from .ring import Mirror, anonymous_file
from .workers import ANSWER, Begin, Failure, Job, parents_ends, work

MAX_LENT = 4  # batches that may lie in the ring while the user has them; further ones are copied
_GRACE = 1.0  # seconds for a worker to end by itself, before it is made to
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # epoll would take a descriptor


@dataclass
class Worker:
    id: int
    process: Any
    connection: Connection
    status: memoryview
    mirror: Mirror


@dataclass
class Request:
    """A batch that a worker was asked for; `answer` is what came back: kind, block, offset, size."""

    worker: Worker
    number: int
    indices: Any
    answer: tuple[int, int, int, int] | None = None


@dataclass
class Pool:
    """Worker processes for one loader.

    Args:
        job: what they do; each gets it with its own id.
        context: of `multiprocessing`.
        timeout: seconds to wait for a batch; 0 is forever.
        mirror: options of the `Mirror`s.

    Attributes:
        pass_number: of the pass that they work on.
    """

    job: Job
    context: Any
    timeout: float
    mirror: dict[str, Any]
    pass_number: int = 0
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._count = 0
        self._selector = _Selector()
        # the finalizer runs at the end of the program as well, and must not hold the pool itself
        self.close = weakref.finalize(self, _close, self.workers, self._selector, os.getpid())
        try:
            for i in range(self.job.num_workers):
                self._start(i)
        except BaseException:
            self.close()
            raise

    def _start(self, i: int) -> None:
        ours, theirs = self.context.Pipe()
        parents_ends.add(ours)
        process = self.context.Process(
            target=work, args=(theirs, replace(self.job, id=i)), daemon=True, name=f"mytorch-loader-{i}"
        )
        process.start()
        theirs.close()
        fd = anonymous_file(PAGESIZE)
        status = memoryview(mmap(fd, PAGESIZE)).cast("q")
        status[0] = -1
        worker = Worker(i, process, ours, status, Mirror(**self.mirror))
        self.workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, worker)
        self._selector.register(process.sentinel, selectors.EVENT_READ, worker)
        send_handle(ours, fd, process.pid)
        os.close(fd)

    def begin(self, epoch: int, asked_epoch: int | None, states: list[dict | None]) -> None:
        """Begin a pass; what is left of the last one is dropped."""
        self.pass_number += 1
        for request in self._requests.values():
            if request.answer:
                request.worker.mirror.give_back(request.answer[1])
        self._requests.clear()
        for worker, state in zip(self.workers, states, strict=True):
            self._tell(worker, Begin(epoch, asked_epoch, state))

    def request(self, worker: int, number: int, indices: Any) -> int:
        """Ask a worker for batch `number` of the pass: the number of the request."""
        self._count += 1
        self._requests[self._count] = Request(self.workers[worker], number, indices)
        self._tell(self.workers[worker], self._count, number, indices)
        return self._count

    def _tell(self, worker: Worker, *message: Any) -> None:
        try:
            worker.connection.send_bytes(pickle.dumps((worker.mirror.take_freed(), *message), 5))
        except (BrokenPipeError, ConnectionResetError):
            return  # it is dead, which the next wait finds out, and says

    def next_answer(self, in_order: bool) -> tuple[Request, int, Any]:
        """What came back for a request: the request, BATCH, ERROR or END, and what goes with it.

        Args:
            in_order: of the oldest request, else of whichever is answered first.

        Raises:
            RuntimeError: a worker died, or the timeout is over.
        """
        deadline = time.monotonic() + self.timeout if self.timeout else None
        self._look(0)
        while (key := self._answered(in_order)) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise RuntimeError(f"DataLoader timed out after {self.timeout:g} s{self._waiting_for()}")
            self._look(left)
        request = self._requests.pop(key)
        kind, *place = request.answer
        return request, kind, request.worker.mirror.read(*place, copy=self._lent() >= MAX_LENT)

    @property
    def is_idle(self) -> bool:
        """Is there no request without an answer that was taken?"""
        return not self._requests

    def _lent(self) -> int:
        return sum(worker.mirror.lent - len(worker.mirror.freed) for worker in self.workers)

    def _answered(self, in_order: bool) -> int | None:
        """The request whose turn it is, if it was answered."""
        if in_order:
            key = next(iter(self._requests))
            return key if self._requests[key].answer else None
        done = (key for key, request in self._requests.items() if request.answer)
        return next(done, None)

    def _look(self, timeout: float | None) -> None:
        """Read what workers have sent, waiting for the first of them, and find out who died."""
        dead = {}
        for key, _ in self._selector.select(timeout):
            worker = key.data
            if key.fileobj is not worker.connection or not self._receive(worker):
                dead[worker.id] = worker
        for worker in dead.values():
            while worker.connection.poll() and self._receive(worker):
                pass  # what it had finished, so that the message names what it hadn't
            raise RuntimeError(self._obituary(worker))

    def _receive(self, worker: Worker) -> bool:
        """Read one answer; False if there will be no more."""
        try:
            answer = worker.connection.recv_bytes()
            request, kind, block, new, dropped, offset, size = ANSWER.unpack(answer)
            if dropped >= 0:
                worker.mirror.drop(dropped)
            if new:
                worker.mirror.add(block, new, recv_handle(worker.connection))
        except (EOFError, ConnectionError):
            return False
        if request in self._requests:
            self._requests[request].answer = kind, block, offset, size
        else:  # of a pass that was broken off
            worker.mirror.give_back(block)
        return True

    def _obituary(self, worker: Worker) -> str:
        worker.process.join(1)
        code = worker.process.exitcode
        if code is None:
            how = "closed its connection"
        elif code >= 0:
            how = f"exited with code {code}"
        else:
            how = f"was killed by signal {-code} ({_signal_name(-code)})"
            if -code in (signal.SIGKILL, getattr(signal, "SIGBUS", None)):
                how += ", as happens when memory runs out"
        request = self._requests.get(worker.status[0])
        if request is None:
            when = "between two batches"
        else:
            name = place_name(self.job.recipe.is_iterable, request.indices, worker.status[-1])
            when = f"while loading {name}, in batch {request.number}"
        return f"DataLoader worker {worker.id} (pid {worker.process.pid}) {how}, {when}"

    def _waiting_for(self) -> str:
        missing = next((r for r in self._requests.values() if not r.answer), None)
        if missing is None:
            return ""
        worker = missing.worker
        text = f": batch {missing.number} of worker {worker.id} (pid {worker.process.pid}) is missing"
        request = self._requests.get(worker.status[0])
        if request is None:
            return text
        place = place_name(self.job.recipe.is_iterable, request.indices, worker.status[-1])
        return f"{text}; it is at {place}, in batch {request.number}"


def _close(workers: list[Worker], selector: selectors.BaseSelector, owner: int) -> None:
    """End the workers: they see that the connection is closed; those that don't are killed."""
    if os.getpid() != owner:  # a forked copy of the pool
        return
    selector.close()  # it is a cycle, which would keep the workers' memory until the next collection
    for worker in workers:
        _hang_up(worker.connection)
    deadline = time.monotonic() + _GRACE
    for how in ("", "terminate", "kill"):
        for worker in workers:
            if how and worker.process.is_alive():
                getattr(worker.process, how)()
        for worker in workers:
            worker.process.join(max(0, deadline - time.monotonic()))
        deadline = time.monotonic() + _GRACE
    for worker in workers:
        if not worker.process.is_alive():
            worker.process.close()
    workers.clear()


def _hang_up(connection: Connection) -> None:
    """Close a connection for good: closing alone leaves it open where a forked process has a copy."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end, suppress(OSError):  # the worker is gone
        end.shutdown(socket.SHUT_RDWR)
    connection.close()


class _Text(str):
    """A message that KeyError shows as it is, with its line breaks."""

    __repr__ = str.__str__


def exception_of(failure: Failure, worker: Worker) -> Exception:
    """The worker's exception, of the nearest class that this process knows and that takes a message."""
    name = failure.classes[0][1]
    message = _Text(
        f"Caught {name} in DataLoader worker process {worker.id} (pid {worker.process.pid}), "
        f"at {failure.place}.\nOriginal {failure.text}"
    )
    for module, qualname in failure.classes:
        kind: Any = sys.modules.get("__main__" if module == "__mp_main__" else module)
        for part in qualname.split("."):
            kind = getattr(kind, part, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or kind is StopIteration:
            continue
        try:
            return kind(message)
        except Exception:  # it wants other arguments, and whatever its __init__ says about these
            continue
    return RuntimeError(message)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
