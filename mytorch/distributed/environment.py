"""Environment variables that the launcher sets: number of processes, timeout, folder; and access to MPI."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TypeAlias

from .errors import DistError

Timeout: TypeAlias = timedelta | float | str | None  # seconds

TIMEOUT = 60.0  # seconds, for a collective
TIMEOUT_VARIABLE = "MYTORCH_DIST_TIMEOUT"
RUN_FOLDER_VARIABLE = "MYTORCH_RUN_FOLDER"  # flight recorders and error files, on the launcher's machine

# The number of processes, as Open MPI's mpiexec, MPICH's, and our launcher under Slurm set it.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MYTORCH_SLURM_TASKS")


def started_size() -> int:
    """Returns how many processes were started together, according to the environment."""
    for name in (*_SIZES, "WORLD_SIZE"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 1


def started_by_mpi() -> bool:
    """Returns whether mpiexec or srun started this process."""
    return any(name in os.environ for name in _SIZES)


@functools.cache
def mpi() -> ModuleType:
    """Returns the module `mpi4py.MPI`; the first import starts MPI.

    Raises:
        DistError: mpi4py or an MPI library is missing; the message says what to install.
    """
    try:
        with _single_process_settings():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no mpi4py; mpi4py without a library
        raise DistError(
            f"more than one process needs MPI, which can't be loaded ({error}): pip install 'mytorch[mpi]'"
        ) from error
    return MPI


@contextmanager
def _single_process_settings() -> Iterator[None]:
    """Keeps Open MPI from leaving a segment in /dev/shm when a process was started without mpiexec."""
    name = "OMPI_MCA_btl"
    if started_by_mpi() or name in os.environ:
        yield
        return
    os.environ[name] = "self"
    try:
        yield
    finally:
        del os.environ[name]  # not for processes that this one starts


def is_available() -> bool:
    """Returns whether mpi4py is installed. A single process doesn't need it."""
    try:
        import mpi4py  # noqa: F401 - not its module MPI, which would start MPI
    except ImportError:
        return False
    return True


def seconds(timeout: Timeout = None) -> float:
    """Returns a timeout in seconds; by default the launcher's, else 60 s.

    Raises:
        ValueError: it isn't positive.
    """
    if timeout is None:
        timeout = os.environ.get(TIMEOUT_VARIABLE) or TIMEOUT
    try:
        value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise ValueError(f"a timeout is a positive number of seconds, got {timeout!r}")
    return value
