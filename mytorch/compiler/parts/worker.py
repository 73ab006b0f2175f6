"""A thread beside the program, for which the process doesn't wait at its end."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Worker:
    """A thread that calls functions one after the other; after an error it calls no others.

    It is a daemon: the interpreter joins the threads of a `ThreadPoolExecutor` at its end, and so would stay
    alive while a source waits for data.

    Args:
        finishes: whether the calls so far are made at the end of the process, if it isn't closed before.
    """

    def __init__(self, name: str, finishes: bool = False):
        self._calls: SimpleQueue[tuple[Future, Callable, tuple] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        if finishes:
            atexit.register(self.close, True)

    def submit(self, function: Callable, *args: Any) -> Future:
        """Returns the future of a call."""
        future: Future = Future()
        self._calls.put((future, function, args))
        return future

    def is_current(self) -> bool:
        """Returns whether this is called in the thread."""
        return threading.current_thread() is self._thread

    def close(self, wait: bool) -> None:
        """Lets the thread end after the calls so far."""
        self._calls.put(None)
        if wait:
            self._thread.join()
        atexit.unregister(self.close)

    def _run(self) -> None:
        failed = False
        while (call := self._calls.get()) is not None:
            future, function, args = call
            if failed or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            try:
                future.set_result(function(*args))
            except BaseException as error:  # raised where one waits for the result
                future.set_exception(error)
                failed = True
            del call, future, function, args  # what it holds mustn't live until the next call
