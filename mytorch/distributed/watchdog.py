"""
The watchdog: a thread that sees to the deadlines of what nobody waits for.

On a GPU `wait()` returns at once, and a collective that never ends would show only as a program that hangs in
some later copy to the CPU. So a thread looks at the operations that are under way, and ends the job when one
is too late, or the ranks didn't agree.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

from . import failure

_STEP = 0.1  # seconds
_COUNTED = 0.25  # of one step: time in which this process was stopped doesn't count


class Watchdog(threading.Thread):
    """Watches the groups that are given to `watch`, as long as they live."""

    def __init__(self):
        super().__init__(daemon=True, name="mytorch-watchdog")
        self._groups: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self, group: Any) -> None:
        self._groups.add(group)

    def run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(_STEP)
            now = time.monotonic()
            passed, last = min(now - last, _COUNTED), now
            for group in list(self._groups):
                try:
                    group.check(passed)
                except BaseException as error:
                    failure.fail(error)


_running: Watchdog | None = None


def watch(group: Any) -> None:
    """Let the thread, which begins now if it hasn't, look after the operations of a group."""
    global _running
    if _running is None:
        _running = Watchdog()
        _running.start()
    _running.watch(group)
