"""Captures take turns: while a thread captures a function, the parameters that it uses hold no elements."""

from __future__ import annotations

import os
import sys
import threading

PATIENCE = 10  # seconds for which a fork waits
_lock = threading.RLock()  # a thread may fork while it captures
_held: list = []  # the locks that a fork has
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


def _before_fork() -> None:
    """Waits until no other thread captures or compiles: a child would have locks that are never released,
    and parameters without elements."""
    compiler = sys.modules.get("numba.core.compiler_lock")
    locks = [_lock, *([] if compiler is None else [compiler.global_compiler_lock._lock])]  # in this order
    _held[:] = [lock for lock in locks if lock.acquire(timeout=PATIENCE)]


def _after_fork() -> None:
    locks = [*_held]
    _held.clear()
    for lock in reversed(locks):
        lock.release()


def _in_forked_child() -> None:
    global _lock, count
    if _lock not in _held:  # the capture took too long; its thread is not in this process
        _lock, count = threading.RLock(), count + count % 2
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
