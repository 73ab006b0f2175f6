"""Traces take turns: while a thread traces a function, the parameters that it uses hold no elements."""

from __future__ import annotations

import os
import sys
import threading

PATIENCE = 10  # seconds for which a fork waits for a trace of another thread
_lock = threading.RLock()  # a thread may fork while it traces
_held_by_fork: list = []
is_tracing = False  # whether a thread holds the lock
finished = 0  # the number of traces that have ended, of all threads


def wait() -> int:
    """Waits until no thread traces; returns the number of traces that have ended."""
    with _lock:
        return finished


def acquire(seen: int) -> bool:
    """Takes the lock and returns True; or returns False if a trace has ended since `finished` was `seen`: it
    may have made the program that is wanted here, or was the reason why no program seemed to fit."""
    global is_tracing
    _lock.acquire()
    if finished != seen:
        _lock.release()
        return False
    is_tracing = True
    return True


def release() -> None:
    """Ends the trace of this thread."""
    global is_tracing, finished
    is_tracing, finished = False, finished + 1
    _lock.release()


def _before_fork() -> None:
    """Waits until no other thread traces or compiles: a child would have locks that are never released, and
    parameters without elements."""
    compiler = sys.modules.get("numba.core.compiler_lock")
    locks = [_lock, *([] if compiler is None else [compiler.global_compiler_lock._lock])]  # in this order
    _held_by_fork[:] = [lock for lock in locks if lock.acquire(timeout=PATIENCE)]


def _after_fork() -> None:
    locks = [*_held_by_fork]
    _held_by_fork.clear()
    for lock in reversed(locks):
        lock.release()


def _in_forked_child() -> None:
    global _lock, is_tracing, finished
    if _lock not in _held_by_fork:  # the trace took too long; its thread is not in this process
        _lock, is_tracing, finished = threading.RLock(), False, finished + 1
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
