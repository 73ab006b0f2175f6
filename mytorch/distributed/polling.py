"""Waiting with a deadline: eager at first, so that a short wait stays short; idle later."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_EAGER = 2e-4  # seconds: longer than a small collective on one machine takes
_LONGEST_NAP = 2e-3
_COUNTED = 0.25  # of one round: a process that was stopped itself must not blame the others


def wait_until(done: Callable[[], bool], timeout: float) -> bool:
    """Call `done` until it is true, or until `timeout` seconds have passed; says which.

    A nap is a sixteenth of the wait so far: it costs that much at most. Time in which this very process was
    stopped, as by SIGSTOP or a suspended laptop, doesn't count.
    """
    if done():
        return True
    waited, last = 0.0, time.monotonic()
    while not done():
        if waited < _EAGER:
            os.sched_yield()  # there may be more ranks than cores
        else:
            time.sleep(min(waited / 16, _LONGEST_NAP))
        now = time.monotonic()
        waited += min(now - last, _COUNTED)
        last = now
        if waited > timeout:
            return done()
    return True
