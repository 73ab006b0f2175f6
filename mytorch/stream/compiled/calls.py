"""What functions that are captured print, take from iterators, and read of clocks: a program would not repeat
it, so it ends the capture."""

from __future__ import annotations

import builtins
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...backends.device import is_users, refuse_tracing, thread
from ..programs.tracing.reachable import Reachable, is_foreign

_lock = threading.Lock()
_depth = 0  # of blocks, of all threads
_before: dict[str, Callable] = {}  # functions of the process, while others stand in their place
_known = threading.local()  # the ids of objects that were there before the capture of a thread


def _refused_print(*values: Any, **options: Any) -> None:
    """Raises NotImplementedError if this thread captures a program, unless it is mytorch that prints."""
    if thread.tracer is not None and is_users(sys._getframe(1)):
        refuse_tracing("what is printed")
    _before["print"](*values, **options)


def _refused_next(*given: Any) -> Any:
    """Raises NotImplementedError if this thread captures a program, and the iterator was there before: which
    element it returns can't be seen, unless it is an object of a user's class."""
    is_new = not given or id(given[0]) not in getattr(_known, "ids", ())
    if thread.tracer is not None and not is_new and is_foreign(type(given[0]).__module__):
        refuse_tracing(f"the next element of a {type(given[0]).__name__}")
    return _before["next"](*given)


def _refused_clock(name: str) -> Callable[[], float]:
    """Returns a function that raises NotImplementedError if this thread captures a program of the user's."""

    def read() -> float:
        if thread.tracer is not None and is_users(sys._getframe(1)):
            refuse_tracing(f"the time that {name}() returns")
        return _before[name]()

    return read


_CLOCKS = [f"{name}{unit}" for name in ("time", "perf_counter", "monotonic") for unit in ("", "_ns")]
_STAND_INS = [
    (builtins, "print", _refused_print), (builtins, "next", _refused_next),
    *[(time, name, _refused_clock(name)) for name in _CLOCKS],
]  # fmt: skip


class _Elements:
    """Stands for an iterator from outside while a program is captured, also in `for`; other threads get its
    elements."""

    def __init__(self, iterator: Iterator):
        self._iterator = iterator

    def __iter__(self) -> _Elements:
        return self

    def __next__(self) -> Any:
        if thread.tracer is not None:
            refuse_tracing(f"the next element of a {type(self._iterator).__name__}")
        return next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


@contextmanager
def refused_effects(reachable: Reachable) -> Iterator[None]:
    """Context in which what this thread prints while it captures a program is an error, at any depth of
    calls, and what it takes of iterators that were there before. Other threads print.

    Args:
        reachable: what the function uses.
    """
    global _depth
    before = getattr(_known, "ids", ())
    _known.ids = reachable.seen
    iterators = [(place, place.read()) for place in reachable.iterators]
    for place, iterator in iterators:
        place.write(_Elements(iterator))
    with _lock:
        for module, name, stand_in in [] if _depth else _STAND_INS:
            _before[name] = getattr(module, name)
            setattr(module, name, stand_in)
        _depth += 1
    try:
        yield
    finally:
        _known.ids = before
        for place, iterator in iterators:
            if type(place.read()) is _Elements:
                place.write(iterator)
        with _lock:
            _depth -= 1
            for module, name, stand_in in [] if _depth else _STAND_INS:
                if getattr(module, name) is stand_in:
                    setattr(module, name, _before[name])
