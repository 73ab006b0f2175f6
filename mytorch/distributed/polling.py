"""Waiting with a deadline: eager at first, so that a short wait stays short; idle later."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_EAGER = 2e-4  # seconds: longer than a small collective on one machine takes
_EAGER_PER_BYTE = 1e-9  # seconds; memory is quicker, most networks are slower
_LONGEST_NAP = 2e-3
_COUNTED = 0.25  # of one round: a process that was stopped itself must not blame the others


def eager_for(nbytes: int) -> float:
    """Seconds for which to be eager, when so many bytes are to come."""
    return _EAGER + _EAGER_PER_BYTE * nbytes


def wait_until(done: Callable[[], bool], timeout: float, eager: float = _EAGER) -> bool:
    """Call `done` until it is true, or until `timeout` seconds have passed; says which.

    For `eager` seconds it is called all the time, since MPI moves nothing unless it is asked. After that it
    takes naps: a sixteenth of the wait so far, which is what they can cost at most. Time in which this very
    process was stopped, as by SIGSTOP or a suspended laptop, doesn't count.
    """
    if done():
        return True
    waited, last = 0.0, time.monotonic()
    while not done():
        if waited < eager:
            os.sched_yield()  # there may be more ranks than cores
        else:
            time.sleep(min(waited / 16, _LONGEST_NAP))
        now = time.monotonic()
        waited += min(now - last, _COUNTED)
        last = now
        if waited > timeout:
            return done()
    return True
