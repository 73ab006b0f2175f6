"""Prints of functions that are captured: a program would not repeat them, so they end the capture."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...backends.device import refuse_tracing, thread

_lock = threading.Lock()
_depth = 0  # of blocks, of all threads
_print = builtins.print  # that of the process, while `_refused` stands in its place


def _refused(*values: Any, **options: Any) -> None:
    """Raises NotImplementedError if this thread captures a program, unless it is mytorch that prints."""
    is_own = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "mytorch"
    if thread.tracer is not None and not is_own:
        refuse_tracing("what is printed")
    _print(*values, **options)


@contextmanager
def refused_prints() -> Iterator[None]:
    """Context in which what this thread prints while it captures a program is an error, at any depth of
    calls. Other threads print."""
    global _depth, _print
    with _lock:
        if not _depth:
            _print, builtins.print = builtins.print, _refused
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth and builtins.print is _refused:
                builtins.print = _print
