"""Work: the handle of an asynchronous operation; and its Future."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..backends.device import RawArray
from ..core.array import Array
from ..core.tensor import Tensor
from . import flight_recorder
from .backends import Request
from .consistency import ConsistencyCheck, PeerWatch
from .environment import Timeout
from .errors import DistError, DistMismatch, DistTimeout
from .polling import wait_until

if TYPE_CHECKING:
    from .process_group import ProcessGroup

TensorLike: TypeAlias = Tensor | Array | RawArray  # what collectives take

_EXPLAIN_SECONDS = 2.0  # for the consistency check to find the reason when the operation itself failed


class Awaitable(Protocol):
    """What a Future waits for."""

    def wait(self) -> object: ...

    def is_completed(self) -> bool: ...


class Work:
    """The handle of an operation that was started with `async_op=True`.

    Call `wait()` before you use the tensors again; for tensors on the CPU `is_completed()` is enough.

    Args:
        group: of the operation.
        record: its number in the flight recorder.
        check: whether the ranks agree on it; None if they aren't compared.
        request: the operation of the backend.
        store: copies the result to the caller's tensors.
        peers: watches the ranks on the other side of a send or receive.
        timeout: in seconds; by default the group's.
        store_early: store the result as soon as it is complete; else in `wait`, on its caller's GPU stream.
        spin: seconds for which `wait` spins before it sleeps.
        instruction: what the stream recorded of its start, if it records (see `mytorch.stream`).

    Attributes:
        outputs: the tensors that the operation writes.
    """

    def __init__(
        self, group: ProcessGroup, record: int, check: ConsistencyCheck | None, request: Request,
        store: Callable[[], None] | None = None, peers: PeerWatch | None = None,
        timeout: float | None = None, store_early: bool = True, spin: float = 0.0,
        instruction: Any = None,
    ):
        self._group, self._record, self._check, self._request = group, record, check, request
        self._store, self._peers, self._spin = store, peers, spin
        self._instruction = instruction
        self.timeout = group.timeout if timeout is None else timeout
        self.outputs: list[TensorLike] = []
        self._completed = self._stored = False
        self._store_early = store_early and request.queue is None
        self._lock, self._age = threading.Lock(), 0.0
        self._error: BaseException | None = None

    def is_completed(self) -> bool:
        """Returns whether the operation is complete, or has failed; polling it makes progress."""
        if not self.poll() and self._group.world is not None:
            self._group.world.turn()
        return self.poll()

    def poll(self) -> bool:
        """Returns `is_completed()`, without letting another rank run where ranks are threads."""
        if self._completed or self._error is not None:
            return True
        with self._lock:  # the watchdog's thread calls this, too
            if not self._completed:
                try:
                    completed = self._advance()
                    if completed and self._store_early:
                        self._finish()
                    self._completed = completed
                except BaseException as error:
                    self._fail(error)
                    raise
                if self._completed:
                    self._end(flight_recorder.DONE)
        return self._completed

    def is_success(self) -> bool:
        """Returns whether the operation is complete without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Returns the error of the operation, if it failed."""
        return self._error

    def wait(self, timeout: Timeout = None) -> bool:
        """Waits for the result; on a GPU, makes the current stream wait for it.

        Raises:
            DistTimeout: it isn't complete after `timeout` seconds (by default the group's).
            DistMismatch: the ranks called different operations.
            DistError: the backend failed.
        """
        if self._error is not None:
            raise self._error
        if self._stored:
            return True
        if self._request.queue is not None:
            self._request.queue()
        else:
            timeout = self.timeout if timeout is None else self._group.timeout_of(timeout)
            if self._group.world is not None:
                self._group.world.wait(self._is_ready, lambda: self._group.describe(self._record))
            if not wait_until(self.poll, timeout, self._spin):
                raise self.time_out(timeout)
            if self._error is not None:  # set by the watchdog's thread
                raise self._error
        self._finish()
        return True

    def result(self) -> list[TensorLike]:
        """Returns the tensors that were written; call `wait()` before."""
        return self.outputs

    def get_future(self) -> Future:
        """Returns a Future of `result()`."""
        return Future(self, self.result)

    def age(self, elapsed: float) -> float:
        """Adds `elapsed` seconds to the time in flight, and returns that time."""
        self._age += elapsed
        return self._age

    def time_out(self, timeout: float) -> DistTimeout:
        """Marks the operation as failed since it missed its deadline; returns the error."""
        error = DistTimeout(self._group.explain_timeout(self._record, timeout))
        self._fail(error)
        return error

    def source_rank(self) -> int:
        """Returns the rank that sent a received tensor."""
        return self._group.ranks[self._request.keep]

    def _advance(self) -> bool:
        agreed = self._check is None or self._check.test()
        try:
            completed = self._request.test()
        except DistError:
            raise
        except Exception as error:
            raise self._explain(error) from error
        if not completed and self._peers is not None and self._peers.are_gone() and self._request.cancel():
            raise self._peers.error(self._group.describe(self._record))
        return completed and agreed

    def _is_ready(self) -> bool:
        """Returns whether all ranks have done what it waits for; for ranks that are threads."""
        return self._request.test() and (self._check is None or self._check.has_arrived())

    def _finish(self) -> None:
        """Copies the result to the caller's tensors, once."""
        if not self._stored:
            self._request.finish()
            if self._store is not None:
                self._store()
            self._stored = True

    def _explain(self, error: Exception) -> DistError:
        """Returns why the backend failed: a mismatch of the ranks, or the backend's own error."""
        if self._check is not None:
            try:
                wait_until(self._check.test, _EXPLAIN_SECONDS)
            except DistMismatch as mismatch:
                return mismatch
        return DistError(f"{self._group.describe(self._record)} failed: {type(error).__name__}: {error}")

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._end(flight_recorder.FAILED)

    def _end(self, state: int) -> None:
        self._group.recorder.end(self._record, state)
        self._group.remove(self)
        if self._instruction is not None:
            self._instruction.end(failed=state == flight_recorder.FAILED)


class Future:
    """The result of an operation, as torch.futures.Future.

    Callbacks of `then` run in `wait()`, not in the background.

    Args:
        work: the operation.
        result: returns the value, after the end of the operation.
    """

    def __init__(self, work: Awaitable, result: Callable[[], object]):
        self._work, self._result = work, result
        self._values: list = []  # one, once it is known

    def wait(self) -> Any:
        """Waits for the operation and returns its value.

        Raises:
            DistError: see `Work.wait`.
        """
        self._work.wait()
        if not self._values:
            self._values.append(self._result())
        return self._values[0]

    value = wait

    def done(self) -> bool:
        """Returns whether the operation is complete."""
        return self._work.is_completed()

    def then(self, callback: Callable[[Future], object]) -> Future:
        """Returns a Future of `callback(self)`."""
        return Future(self._work, lambda: callback(self))
