"""Work: a collective that was started, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import recorder
from .channel import Comparison
from .engines import Request
from .errors import DistError, DistMismatch, DistTimeout
from .peer_watch import PeerWatch
from .polling import wait_until

_AFTER_AN_ERROR = 2.0  # seconds for the comparison to say why, when the operation itself failed


class Work:
    """A handle on an operation that was started with `async_op=True`.

    Call `wait()` before you touch the tensors again; of tensors on the CPU `is_completed()` says the same.

    Args:
        group: of the operation.
        record: its number in the recorder.
        comparison: do the ranks agree on it? None if nobody compares.
        pending: the operation itself.
        store: brings the result to the callers' arrays.
        peers: watches the ranks that a send or receive is with.
        timeout: in seconds; by default the group's.
        early: the result may be stored when somebody asks; else in `wait` alone, in its GPU stream.
        eager: seconds for which `wait` is worth a core's full attention.

    Attributes:
        written: the tensors that the operation writes.
    """

    def __init__(
        self, group: Any, record: int, comparison: Comparison | None, pending: Request,
        store: Callable[[], None] | None = None, peers: PeerWatch | None = None,
        timeout: float | None = None, early: bool = True, eager: float = 0.0,
    ):  # fmt: skip
        self._group, self._record, self._comparison, self._pending = group, record, comparison, pending
        self._store, self._peers, self._eager = store, peers, eager
        self.timeout = group.timeout if timeout is None else timeout
        self.written: list[Any] = []
        self._over = self._stored = False
        self._early = early and pending.queue is None
        self._lock, self._age = threading.Lock(), 0.0
        self._error: BaseException | None = None

    def is_completed(self) -> bool:
        """Is it over? Asking moves it along."""
        if self._over or self._error is not None:
            return True
        with self._lock:  # the watchdog asks, too
            if not self._over:
                try:
                    over = self._advance()
                    if over and self._early:
                        self._bring()
                    self._over = over
                except BaseException as error:
                    self._fail(error)
                    raise
                if self._over:
                    self._group.recorder.end(self._record)
                    self._group.forget(self)
        return self._over

    def is_success(self) -> bool:
        """Is it over, without an error?"""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong, if anything has."""
        return self._error

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the result is there; on a GPU, make the current stream wait for it.

        Raises:
            DistTimeout: it isn't over after `timeout` seconds (by default the group's).
            DistMismatch: the ranks want different things.
            DistError: the engine failed.
        """
        if self._error is not None:
            raise self._error
        if self._stored:
            return True
        if self._pending.queue is not None:
            self._pending.queue()
        else:
            timeout = self.timeout if timeout is None else self._group.timeout_of(timeout)
            if not wait_until(self.is_completed, timeout, self._eager):
                raise self.give_up(timeout)
            if self._error is not None:  # the watchdog was first
                raise self._error
        self._bring()
        return True

    def result(self) -> list[Any]:
        """The tensors that were written; call `wait()` before."""
        return self.written

    def get_future(self) -> Future:
        """A Future of `result()`."""
        return Future(self, self.result)

    def age(self, passed: float) -> float:
        """Seconds under way, after `passed` more."""
        self._age += passed
        return self._age

    def give_up(self, timeout: float) -> DistTimeout:
        """Fail for being too late; returns the error."""
        error = DistTimeout(self._group.explain_timeout(self._record, timeout))
        self._fail(error)
        return error

    def source_rank(self) -> int:
        """The rank that a received tensor came from."""
        return self._group.ranks[self._pending.keep]

    def _advance(self) -> bool:
        agreed = self._comparison is None or self._comparison.test()
        try:
            over = self._pending.test()
        except DistError:
            raise
        except Exception as error:
            raise self._cause_of(error) from error
        if not over and self._peers is not None and self._peers.are_gone() and self._pending.cancel():
            raise self._peers.error(self._group.describe(self._record))
        return over and agreed

    def _bring(self) -> None:
        """Bring the result to where it belongs, once."""
        if not self._stored:
            self._pending.finish()
            if self._store is not None:
                self._store()
            self._stored = True

    def _cause_of(self, error: Exception) -> DistError:
        """Why the engine failed: the ranks don't agree, or what it says itself."""
        if self._comparison is not None:
            try:
                wait_until(self._comparison.test, _AFTER_AN_ERROR)
            except DistMismatch as mismatch:
                return mismatch
        return DistError(f"{self._group.describe(self._record)} failed: {type(error).__name__}: {error}")

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._group.recorder.end(self._record, recorder.FAILED)
        self._group.forget(self)


class Future:
    """What an operation gives when it is over, as torch.futures.Future.

    Nothing runs by itself: `wait()` calls the functions that `then` was given.

    Args:
        work: the operation.
        result: what to give after its end.
    """

    def __init__(self, work: Any, result: Callable[[], Any]):
        self._work, self._result = work, result
        self._found: list[Any] = []

    def wait(self) -> Any:
        """Wait for the operation, and give what it gives.

        Raises:
            DistError: see `Work.wait`.
        """
        self._work.wait()
        if not self._found:
            self._found.append(self._result())
        return self._found[0]

    value = wait

    def done(self) -> bool:
        """Is the operation over?"""
        return self._work.is_completed()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A Future of what `callback` makes of this one."""
        return Future(self._work, lambda: callback(self))
