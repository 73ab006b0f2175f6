"""What the launcher tells a process: how many there are, which one it is, how long to wait."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from .errors import DistError

TIMEOUT = 60.0  # seconds, for a collective
TIMEOUT_VARIABLE = "MYTORCH_DIST_TIMEOUT"
RUN_FOLDER_VARIABLE = "MYTORCH_RUN_FOLDER"  # where recorders and error files lie, on the launcher's machine

# How MPI's own starters tell the number of processes: Open MPI, MPICH and Slurm's PMI.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MYTORCH_SLURM_TASKS")


def started_size() -> int:
    """How many processes were started together, as far as the environment says."""
    for name in (*_SIZES, "WORLD_SIZE"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 1


def by_mpi() -> bool:
    """Did an MPI starter (mpiexec, srun) start this process?"""
    return any(name in os.environ for name in _SIZES)


@functools.cache
def mpi() -> Any:
    """The module `mpi4py.MPI`, which starts MPI when it is imported.

    Raises:
        DistError: mpi4py or an MPI library is missing; the message says what to install.
    """
    try:
        with _alone_without_shared_memory():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no mpi4py; mpi4py without a library
        raise DistError(
            f"more than one process needs MPI, which can't be loaded ({error}): pip install 'mytorch[mpi]'"
        ) from error
    return MPI


@contextmanager
def _alone_without_shared_memory() -> Iterator[None]:
    """Open MPI leaves a segment in /dev/shm behind for a process that no starter started; it needs none."""
    name = "OMPI_MCA_btl"
    if by_mpi() or name in os.environ:
        yield
        return
    os.environ[name] = "self"
    try:
        yield
    finally:
        del os.environ[name]  # it isn't for what this process may start


def is_available() -> bool:
    """Is there an MPI to communicate through? A single process needs none."""
    try:
        import mpi4py  # noqa: F401 - without its module MPI, which would start it
    except ImportError:
        return False
    return True


def seconds(timeout: Any = None) -> float:
    """A timeout in seconds: of a number or a timedelta; by default the launcher's, else 60 s.

    Raises:
        ValueError: it isn't positive.
    """
    if timeout is None:
        timeout = os.environ.get(TIMEOUT_VARIABLE) or TIMEOUT
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not found > 0:
        raise ValueError(f"a timeout is a positive number of seconds, got {timeout!r}")
    return found
