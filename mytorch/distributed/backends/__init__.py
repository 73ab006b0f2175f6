"""
Backends: what moves the data of a process group. All have these methods, on raw C-contiguous arrays:

    all_reduce(x, op)  broadcast(x, root)  reduce(x, root, op)       in place
    all_gather(out, x, counts)  reduce_scatter(out, x, op, counts)   `out` or `x` has a row per rank, or is a
                                                                     vector with counts[r] elements of rank r
    gather(out, x, root)  scatter(out, x, root)                      `out`, `x` may be None where not needed
    all_to_all(out, x, out_counts, counts)                           flat; counts in elements
    send(x, peer, tag)  recv(x, peer, tag)

Each starts the operation and returns a `Request`. Ranks are those of the group.
"""

from __future__ import annotations

from collections.abc import Callable


class Request:
    """An operation that a backend has started; by default one that is already complete.

    Args:
        test: returns whether the operation is complete. May advance it; raises if it failed.
        finish: called once after completion, to copy the result to its destination.
        keep: objects that must stay alive until then.
        queue: makes later work on the current stream wait for the operation without blocking; None on CPUs.
        cancel: cancels a receive; returns False if its message has started to arrive.
    """

    __slots__ = ("test", "finish", "keep", "queue", "cancel")

    def __init__(
        self, test: Callable[[], bool] = lambda: True, finish: Callable[[], None] = lambda: None,
        keep: object = None, queue: Callable[[], None] | None = None,
        cancel: Callable[[], bool] = lambda: True,
    ):
        self.test, self.finish, self.keep, self.queue, self.cancel = test, finish, keep, queue, cancel


__all__ = ["Request"]
