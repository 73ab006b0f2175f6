"""Captures take turns: while a thread captures a function, the parameters that it uses hold no elements."""

from __future__ import annotations

import threading

_lock = threading.Lock()
count = 0  # of captures that have begun or ended, of all threads: odd while one is at it


def wait() -> int:
    """Waits until no thread captures; returns the count."""
    with _lock:
        return count


def begin(seen: int) -> bool:
    """Begins a capture; not if there was one since `count` was `seen`, which may have made a program that is
    wanted here, or was the reason why none seemed to fit."""
    global count
    _lock.acquire()
    if count != seen:
        _lock.release()
        return False
    count += 1
    return True


def end() -> None:
    """Ends the capture that this thread has begun."""
    global count
    count += 1
    _lock.release()
