"""The worker pool: starts workers, sends requests, receives batches, detects dead workers, ends them."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from typing import Any

from .fetch import describe
from .passes import ENDED, Pass, Position, Requests
from .ring import Mirror, map_status, shared_file
from .worker import ANSWER, BATCH, END, Begin, Failure, Job, work

MAX_LENT = 4  # batches that the user may hold in shared memory; further ones are copied
_GRACE = 1.0  # seconds for a worker to exit before it is terminated
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # epoll would use a file descriptor

POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()  # of this process


@dataclass
class Request:
    """A request for a batch; `answer` is the kind of the answer, and its position in the ring."""

    worker: Worker
    number: int
    indices: object
    answer: tuple[int, ...] | None = None
    is_stale: bool = False  # from an unfinished earlier pass


@dataclass
class Worker:
    """A worker process; `pending` are the unanswered requests, in order."""

    id: int
    process: BaseProcess
    connection: Connection
    status: memoryview
    fd: int
    mirror: Mirror
    pending: deque[Request] = field(default_factory=deque)
    answered: int = 0


class Pool:
    """Worker processes for one loader.

    Args:
        job: the job of the workers; each gets a copy with its id.
        timeout: seconds to wait for a batch; 0 waits forever.
        mirror: arguments of `Mirror`.

    Attributes:
        pass_number: number of the current pass.
        taken, waited: batches that were taken, and the seconds spent waiting for them.
    """

    def __init__(self, job: Job, context: BaseContext, timeout: float, mirror: dict[str, Any]):
        self.job, self.timeout, self.pass_number = job, timeout, 0
        self.taken, self.waited = 0, 0.0
        POOLS.add(self)
        self.workers: list[Worker] = []
        self._requests: deque[Request] = deque()  # of this pass whose batches were not taken, in order
        self._selector = _Selector()
        # the finalizer also runs at exit, and must not refer to the pool
        self.close = weakref.finalize(self, _close, self.workers, self._selector, os.getpid())
        try:
            for i in range(job.num_workers):
                worker = _start(i, job, context, mirror)
                self.workers.append(worker)
                for source in (worker.connection, worker.process.sentinel):
                    self._selector.register(source, selectors.EVENT_READ, worker)
        except BaseException:
            self.close()
            raise

    def begin(self, position: Position, set_epoch: int | None) -> None:
        """Begins a pass; unfinished requests of the last one are discarded."""
        self.pass_number += 1
        for request in self._requests:
            request.is_stale = True
            if request.answer:
                request.worker.mirror.discard(request.answer[1])
        self._requests.clear()
        for worker, state in zip(self.workers, position.streams, strict=True):
            _send(worker, Begin(position.seed, position.epoch, set_epoch, state))

    def request(self, i: int, number: int, indices: object) -> None:
        """Requests batch `number` of the pass from worker i."""
        worker = self.workers[i]
        request = Request(worker, number, indices)
        self._requests.append(request)
        worker.pending.append(request)
        _send(worker, number, indices)

    def next_answer(self, in_order: bool) -> tuple[Request, int, object]:
        """Returns an answered request, BATCH, ERROR or END, and the batch or the failure.

        Args:
            in_order: wait for the oldest request, else for any.

        Raises:
            RuntimeError: a worker died, or the timeout expired.
        """
        deadline = time.monotonic() + self.timeout if self.timeout else None
        self._receive(0)
        while (request := self._answered(in_order)) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise RuntimeError(f"DataLoader timed out after {self.timeout:g} s{self._waiting_for()}")
            began = time.monotonic()
            self._receive(left)
            self.waited += time.monotonic() - began
        self._requests.remove(request)
        self.taken += 1
        kind, *place = request.answer
        is_copied = sum(worker.mirror.lent - len(worker.mirror.freed) for worker in self.workers) >= MAX_LENT
        return request, kind, request.worker.mirror.read(*place, copy=is_copied)

    @property
    def is_idle(self) -> bool:
        """Whether all requests were answered and their batches taken."""
        return not self._requests

    def _answered(self, in_order: bool) -> Request | None:
        requests = [self._requests[0]] if in_order else self._requests
        return next((request for request in requests if request.answer), None)

    def _receive(self, timeout: float | None) -> None:
        """Receives the answers of the workers; waits for the first one.

        Raises:
            RuntimeError: a worker died.
        """
        dead = []
        for key, _ in self._selector.select(timeout):
            worker = key.data
            if key.fileobj is not worker.connection or not _receive_from(worker):
                dead.append(worker)
        for worker in dead:
            while worker.connection.poll() and _receive_from(worker):
                pass  # finished batches, so that the error names the unfinished one
            raise RuntimeError(self._death_message(worker))

    def current(self, worker: Worker) -> str | None:
        """Returns a description of the sample that a worker is loading; None between two batches."""
        begun, done = worker.status[:2]
        if begun <= max(worker.answered, done):  # it may have answered what wasn't received yet
            return None
        request = worker.pending[begun - worker.answered - 1]
        sample = describe(self.job.recipe.is_iterable, request.indices, worker.status[-1])
        return f"{sample}, in batch {request.number}"

    def _death_message(self, worker: Worker) -> str:
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
        current = self.current(worker)
        when = f"while loading {current}" if current else "between two batches"
        return f"DataLoader worker {worker.id} (pid {worker.process.pid}) {how}, {when}"

    def _waiting_for(self) -> str:
        request = next((r for r in self._requests if not r.answer), None)
        if request is None:
            return ""
        worker, current = request.worker, self.current(request.worker)
        text = f": batch {request.number} of worker {worker.id} (pid {worker.process.pid}) is missing"
        return f"{text}; it is at {current}" if current else text


def _start(i: int, job: Job, context: BaseContext, mirror: dict[str, Any]) -> Worker:
    ours, theirs = context.Pipe()
    job = replace(job, id=i, from_lasting_thread=threading.current_thread() is threading.main_thread())
    process = context.Process(target=work, args=(theirs, job), daemon=True, name=f"mytorch-loader-{i}")
    process.start()
    theirs.close()
    fd = shared_file()
    send_handle(ours, fd, process.pid)
    return Worker(i, process, ours, map_status(fd), fd, Mirror(fd, **mirror))


def _send(worker: Worker, *message: object) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # the worker died: the next `_receive` raises
        worker.connection.send_bytes(pickle.dumps((worker.mirror.take_freed(), *message), 5))


def _receive_from(worker: Worker) -> bool:
    """Receives one answer; returns False if the connection is closed."""
    try:
        answer = ANSWER.unpack(worker.connection.recv_bytes())
    except (EOFError, ConnectionError):
        return False
    request = worker.pending.popleft()
    worker.answered += 1
    if request.is_stale:
        worker.mirror.discard(answer[1])
    else:
        request.answer = answer
    return True


def _close(workers: list[Worker], selector: selectors.BaseSelector, owner: int) -> None:
    """Closes the connections, at which workers exit; terminates or kills those that don't."""
    if os.getpid() != owner:  # a forked copy of the pool
        return
    selector.close()  # a reference cycle, which would keep the workers' memory alive
    for worker in workers:
        # a forked process may have a copy of the connection, which only shutdown closes
        with socket.socket(fileno=os.dup(worker.connection.fileno())) as end, suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        worker.connection.close()
    deadline = time.monotonic() + _GRACE
    for how in ("", "terminate", "kill"):
        for worker in workers:
            if how and worker.process.is_alive():
                getattr(worker.process, how)()
        for worker in workers:
            worker.process.join(max(0, deadline - time.monotonic()))
        deadline = time.monotonic() + _GRACE
    for worker in workers:
        os.close(worker.fd)
        worker.pending.clear()  # requests and workers refer to each other
        if not worker.process.is_alive():
            worker.process.close()
    workers.clear()


class WithWorkers(Pass):
    """A pass over batches that the workers of a pool load ahead.

    Each worker has `prefetch_factor` requests at any time: when its batch is taken, it gets the next request.
    So batches come from the workers in turn, without those whose stream has ended.

    Args:
        order: see `Pass`.
        is_persistent: keep the pool for the next pass.
    """

    def __init__(
        self, order: object, pool: Pool, position: Position, requests: Requests, set_epoch: int | None,
        prefetch_factor: int, in_order: bool, is_persistent: bool,
    ):
        super().__init__(order, position)
        self._pool, self._requests = pool, requests
        self._in_order, self._is_persistent = in_order, is_persistent
        pool.begin(position, set_epoch)
        self._pass_number = pool.pass_number
        count = len(pool.workers)
        turns = [(position.turn + i) % count for i in range(count)]
        busy = [i for i in turns if not (position.streams[i] or {}).get("ended")]
        for i in busy * prefetch_factor:
            self._request(i)

    def _request(self, worker: int) -> None:
        for number, indices in self._requests:
            self._pool.request(worker, number, indices)
            return

    def take(self) -> tuple[Any, int, int, dict | None] | None:
        if self._pool.pass_number != self._pass_number:
            raise RuntimeError("this pass is over: another pass with the same persistent workers has begun")
        while not self._pool.is_idle:
            try:
                request, kind, value = self._pool.next_answer(self._in_order)
            except BaseException:  # a worker died, or Ctrl-C was pressed
                self.position.is_over = True
                self._pool.close()
                raise
            worker = request.worker
            if kind == END:
                self.position.streams[worker.id] = ENDED
                continue
            self._request(worker.id)
            if kind == BATCH:
                batch, stream = value
                return batch, request.number, worker.id, stream
            self.position.advance(request.number, worker.id, self.position.streams[worker.id])
            raise exception_of(value[0], worker)
        if not self._is_persistent:
            self._pool.close()
        return None


class _Text(str):
    """A message that KeyError prints with its line breaks."""

    __repr__ = str.__str__


def exception_of(failure: Failure, worker: Worker) -> Exception:
    """Returns the worker's exception, as the first of its classes that exists here and takes a message."""
    name = failure.classes[0][1]
    message = _Text(
        f"Caught {name} in DataLoader worker process {worker.id} (pid {worker.process.pid}), "
        f"at {failure.location}.\nOriginal {failure.text}"
    )
    for module, qualname in failure.classes:
        kind: Any = sys.modules.get("__main__" if module == "__mp_main__" else module)
        for part in qualname.split("."):
            kind = getattr(kind, part, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or kind is StopIteration:
            continue
        try:
            return kind(message)
        except Exception:  # its __init__ takes other arguments
            continue
    return RuntimeError(message)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
