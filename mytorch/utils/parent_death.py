"""Ends a process when its parent ends, also while code of the user runs in it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_CHECK_SECONDS = 1.0


def die_with_parent(parent: int | None = None) -> None:
    """Lets the system kill this process when its parent ends (Linux only).

    For the system the parent is the thread that started this process: one that ends earlier than its process
    would end this one, too.

    Args:
        parent: its process id; if it has ended already, this process exits at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def exit_with_parent(has_ended: Callable[[], bool]) -> None:
    """Starts a thread that exits this process within a second of its parent.

    It can't run while compiled code holds Python's lock.
    """

    def watch() -> None:
        while not has_ended():
            time.sleep(_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="mytorch-parent-watch").start()
