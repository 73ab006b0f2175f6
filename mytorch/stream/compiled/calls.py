"""Calls of `print` and `next` in functions that are captured: a program would not repeat them, so they end
the capture."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from ...backends.device import refuse_tracing, thread
from ..programs.reachable import is_foreign

_lock = threading.Lock()
_depth = 0  # of blocks, of all threads
_print, _next = builtins.print, builtins.next  # those of the process, while others stand in their place
_known = threading.local()  # the ids of objects that were there before the capture of a thread


def _refused_print(*values: Any, **options: Any) -> None:
    """Raises NotImplementedError if this thread captures a program, unless it is mytorch that prints."""
    is_own = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "mytorch"
    if thread.tracer is not None and not is_own:
        refuse_tracing("what is printed")
    _print(*values, **options)


def _refused_next(*given: Any) -> Any:
    """Raises NotImplementedError if this thread captures a program, and the iterator was there before: which
    element it returns can't be seen, unless it is an object of a user's class."""
    is_new = not given or id(given[0]) not in getattr(_known, "ids", ())
    if thread.tracer is not None and not is_new and is_foreign(type(given[0]).__module__):
        refuse_tracing(f"the next element of a {type(given[0]).__name__}")
    return _next(*given)


@contextmanager
def refused_effects(known: Collection[int]) -> Iterator[None]:
    """Context in which what this thread prints while it captures a program is an error, at any depth of
    calls, and what it takes of iterators. Other threads print.

    Args:
        known: the ids of objects that were there before.
    """
    global _depth, _print, _next
    before = getattr(_known, "ids", ())
    _known.ids = known
    with _lock:
        if not _depth:
            _print, builtins.print = builtins.print, _refused_print
            _next, builtins.next = builtins.next, _refused_next
        _depth += 1
    try:
        yield
    finally:
        _known.ids = before
        with _lock:
            _depth -= 1
            if not _depth and builtins.print is _refused_print:
                builtins.print = _print
            if not _depth and builtins.next is _refused_next:
                builtins.next = _next
