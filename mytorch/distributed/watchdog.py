"""
The watchdog: a thread that ends the job when an operation misses its deadline and no `wait()` notices.

On a GPU `wait()` returns at once, and a collective that never completes would only show as a program that
hangs in a later copy to the CPU. So a thread checks the operations in flight, and fails when one is too late
or the ranks called different ones.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

from . import error_report
from .polling import LONGEST_STEP

if TYPE_CHECKING:
    from .process_group import ProcessGroup

_POLL_SECONDS = 0.1


class Watchdog(threading.Thread):
    """Watches process groups until they are garbage-collected."""

    def __init__(self):
        super().__init__(daemon=True, name="mytorch-watchdog")
        self._groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()

    def watch(self, group: ProcessGroup) -> None:
        self._groups.add(group)

    def run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            elapsed, last = min(now - last, LONGEST_STEP), now
            for group in list(self._groups):
                try:
                    group.check(elapsed)
                except BaseException as error:
                    error_report.fail(error)


_watchdog: Watchdog | None = None


def watch(group: ProcessGroup) -> None:
    """Adds a group to those that the thread watches; starts the thread at the first call."""
    global _watchdog
    if _watchdog is None:
        _watchdog = Watchdog()
        _watchdog.start()
    _watchdog.watch(group)
