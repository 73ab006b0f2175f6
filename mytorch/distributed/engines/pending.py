"""Pending: an operation of an engine that has begun."""

from __future__ import annotations

from collections.abc import Callable


class Pending:
    """An operation that has begun, and is over at once by default.

    Args:
        test: is it over? It may move things along, and raises what went wrong.
        finish: called once, when it is over and somebody wants the result.
        keep: what must stay alive until then.
        queue: called to make later work wait for it, without waiting itself; None on the CPU.
    """

    __slots__ = ("test", "finish", "keep", "queue")

    def __init__(
        self,
        test: Callable[[], bool] = lambda: True,
        finish: Callable[[], None] = lambda: None,
        keep: object = None,
        queue: Callable[[], None] | None = None,
    ):
        self.test, self.finish, self.keep, self.queue = test, finish, keep, queue
