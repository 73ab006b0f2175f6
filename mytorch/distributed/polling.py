"""Waits with a deadline: spins at first, so that a short wait stays short, and sleeps later."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_SPIN_SECONDS = 2e-4  # longer than a small collective on one machine takes
_SPIN_SECONDS_PER_BYTE = 1e-9  # memory is faster, most networks are slower
_LONGEST_SLEEP = 2e-3
LONGEST_STEP = 0.25  # seconds of one step that count: this process may have been stopped


def spin_seconds(nbytes: int) -> float:
    """Returns the seconds to spin for an operation on `nbytes` bytes."""
    return _SPIN_SECONDS + _SPIN_SECONDS_PER_BYTE * nbytes


def wait_until(done: Callable[[], bool], timeout: float, spin: float = _SPIN_SECONDS) -> bool:
    """Calls `done` until it returns True or `timeout` seconds have passed; returns which.

    It spins for `spin` seconds, since MPI makes no progress unless it is polled. Then it sleeps for a
    sixteenth of the time waited so far, which bounds the delay. Time in which this process was stopped, as by
    SIGSTOP or a suspended laptop, doesn't count.
    """
    if done():
        return True
    waited, last = 0.0, time.monotonic()
    while not done():
        if waited < spin:
            os.sched_yield()  # there may be more ranks than cores
        else:
            time.sleep(min(waited / 16, _LONGEST_SLEEP))
        now = time.monotonic()
        waited += min(now - last, LONGEST_STEP)
        last = now
        if waited > timeout:
            return done()
    return True
