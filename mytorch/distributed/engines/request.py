"""Request: an operation of an engine that has begun."""

from __future__ import annotations

from collections.abc import Callable


class Request:
    """An operation that has begun, and is over at once by default.

    Args:
        test: is it over? It may move things along, and raises what went wrong.
        finish: called once, when it is over, to bring the result to where it belongs.
        keep: what must stay alive until then.
        queue: called to make later work wait for it, without waiting itself; None on the CPU.
        cancel: gives up a receive; False if its message has begun to come.
    """

    __slots__ = ("test", "finish", "keep", "queue", "cancel")

    def __init__(
        self,
        test: Callable[[], bool] = lambda: True,
        finish: Callable[[], None] = lambda: None,
        keep: object = None,
        queue: Callable[[], None] | None = None,
        cancel: Callable[[], bool] = lambda: True,
    ):
        self.test, self.finish, self.keep, self.queue, self.cancel = test, finish, keep, queue, cancel
