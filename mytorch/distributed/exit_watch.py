"""
The end of a job: which rank has finished the script but can't exit, and why.

Python waits for threads and calls exit functions; then MPI shuts down, which waits for all ranks. A thread of
each rank watches the first part, and the launcher both: in the second no Python code runs any more.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from . import error_report, flight_recorder
from .environment import seconds
from .errors import DistTimeout
from .flight_recorder import EXITING, LEAVING
from .polling import wait_until
from .processes import state_of

EXIT_VARIABLE = "MYTORCH_EXIT_TIMEOUT"
_EXIT_SECONDS = 1800.0  # for the slowest rank to finish and to exit, while it runs
_NOTICE_SECONDS = 10.0  # before the user reads what the job waits for
_MPI_SECONDS = 60.0  # for MPI's shutdown, once all ranks take part in it
_MARGIN_SECONDS = 10.0  # for the report of a rank to come before the launcher's
_LOOK_SECONDS = 1.0
_STACK_LINES = 12


def exit_seconds(environment: Mapping[str, str] = os.environ) -> float:
    """Returns how long ranks may take to finish after the first one, and then to exit."""
    return seconds(environment.get(EXIT_VARIABLE) or _EXIT_SECONDS)


def start(rank: int) -> None:
    """Starts the thread that ends the job if this rank, which has finished, doesn't exit in time."""
    threading.Thread(target=_watch, args=(rank,), daemon=True, name="mytorch-exit-watch").start()


def _watch(rank: int) -> None:
    try:
        limit = exit_seconds()
        notice = min(_NOTICE_SECONDS, limit)
        wait_until(lambda: False, notice)
        if limit > notice:
            names = _obstacle()[0]
            text = f"mytorchrun: rank {rank} has finished the script, and waits up to {limit:g} s for {names}"
            with contextlib.suppress(OSError, ValueError):  # the script may have closed it
                print(text, file=sys.stderr, flush=True)
            wait_until(lambda: False, limit - notice)
        names, stack = _obstacle()
        text = f"rank {rank} finished the script, but did not exit within {limit:g} s: it waits for {names}"
        raise DistTimeout("\n".join([text, *stack[-_STACK_LINES:]]))
    except BaseException as error:
        error_report.fail(error)


def _obstacle() -> tuple[str, list[str]]:
    """Returns what keeps this process from exiting, and its stack."""
    main, frames = threading.main_thread(), sys._current_frames()
    threads = [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]
    names = ", ".join(f"thread {thread.name!r}" for thread in threads) or "a function that runs at the exit"
    frame = frames.get(threads[0].ident if threads else main.ident)
    return names, "".join(traceback.format_stack(frame)).splitlines() if frame else []


class ExitDeadline:
    """The launcher's deadline for the ranks that write their flight recorders on this machine.

    Args:
        ranks: of the job.
        expected: how many of them run on this machine; 0 if unknown.
        environment: of the ranks.
    """

    def __init__(self, ranks: int, expected: int, environment: Mapping[str, str]):
        self._expected, self._limit = expected, exit_seconds(environment) + _MARGIN_SECONDS
        self._mpi_limit = _MPI_SECONDS if expected == ranks else self._limit
        self._stage, self._waited, self._last = 0, 0.0, time.monotonic()

    def error(self, folder: Path) -> str:
        """Returns which ranks missed the deadline; "" while none has. Called several times per second."""
        now = time.monotonic()
        if not self._expected or now - self._last < _LOOK_SECONDS:
            return ""
        self._last = now
        flights = flight_recorder.read_all(folder)
        stage = min(flight.stage for flight in flights.values()) if len(flights) >= self._expected else 0
        self._waited = self._waited + _LOOK_SECONDS if stage == self._stage else 0.0
        self._stage = stage
        limit = {LEAVING: self._limit, EXITING: min(self._mpi_limit, self._limit)}.get(stage)
        if limit is None or self._waited < limit:
            return ""
        alive = [str(rank) for rank, flight in flights.items() if state_of(flight.pid) != "gone"]
        why = "threads or exit functions" if stage == LEAVING else "MPI's shutdown (closed descriptors?)"
        return f"rank {', '.join(alive)} finished the script, but did not exit within {limit:g} s: {why}"
