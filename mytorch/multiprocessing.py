"""Python's `multiprocessing` under PyTorch's name, and `spawn`, which calls a function in n processes.

Tensors are pickled, so a process gets a copy: memory is not shared.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any

from .stream.log import path_for_ranks, start_in_rank

__all__ = [
    *multiprocessing.__all__, "ProcessContext", "ProcessExitedException", "ProcessRaisedException",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
]


class ProcessRaisedException(Exception):
    """A process raised an exception; the message holds its traceback."""


class ProcessExitedException(Exception):
    """A process ended with a code other than 0."""


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Calls `fn(i, *args)` in the processes i = 0 … nprocs - 1.

    Args:
        join: wait for all of them; without it, return the `ProcessContext`.
        daemon: end them with this process.
        start_method: "spawn", "fork" or "forkserver".

    Raises:
        ProcessRaisedException, ProcessExitedException: a process failed; the others are terminated.
    """
    context = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        reader, writer = context.Pipe(duplex=False)
        log = path_for_ranks(), i, nprocs
        process = context.Process(target=_run, args=(fn, i, args, writer, log), daemon=daemon)
        process.start()
        writer.close()
        processes.append(process)
        errors.append(reader)
    running = ProcessContext(processes, errors)
    if not join:
        return running
    while not running.join():
        pass
    return None


start_processes = spawn


class ProcessContext:
    """The processes that `spawn` started."""

    def __init__(self, processes: list, errors: list):
        self.processes, self._errors = processes, errors

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until one process ends; returns whether all have.

        Raises:
            ProcessRaisedException, ProcessExitedException: it failed; the others are terminated.
        """
        alive = [process.sentinel for process in self.processes if process.is_alive()]
        if alive:
            multiprocessing.connection.wait(alive, timeout)
        for i, process in enumerate(self.processes):
            if process.exitcode:
                self._terminate(grace_period)
                self._raise(i, process.exitcode)
        return all(process.exitcode == 0 for process in self.processes)

    def _terminate(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(grace_period)

    def _raise(self, i: int, code: int) -> None:
        try:
            text = self._errors[i].recv() if self._errors[i].poll() else None
        except EOFError:
            text = None
        if text is None:
            raise ProcessExitedException(f"process {i} terminated with exit code {code}")
        raise ProcessRaisedException(f"-- Process {i} terminated with the following error:\n{text}")


def _run(fn: Callable, i: int, args: tuple, errors: Any, log: tuple[str, int, int]) -> None:
    start_in_rank(*log)
    try:
        fn(i, *args)
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


def get_all_sharing_strategies() -> set[str]:
    """Returns those of PyTorch's strategies that there are: nothing is shared."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Has no effect: tensors are copied."""
