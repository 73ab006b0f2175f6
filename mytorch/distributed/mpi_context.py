"""MPIContext: this process among all that MPI started together, for as long as the process runs."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from ..utils.call_site import call_site
from . import error_report, flight_recorder
from .consistency import ConsistencyChecker, checkers
from .environment import RUN_FOLDER_VARIABLE, mpi, seconds, started_by_mpi, started_size
from .errors import DistError, DistTimeout
from .exit_watch import exit_seconds
from .flight_recorder import EXITING, FINISHED, LEAVING
from .polling import wait_until
from .processes import state_of

if TYPE_CHECKING:
    from mpi4py import MPI


class MPIContext:
    """All ranks, over MPI.

    Attributes:
        rank, size: among all ranks.
        local_rank, local_size: among those on this machine.
        comm: the communicator that others are derived from.
        recorder: the flight recorder of this process.

    Raises:
        DistError: MPI is missing, or found fewer processes than were started.
    """

    def __init__(self):
        MPI = mpi()
        world = MPI.COMM_WORLD
        if world.size < started_size():
            why = "mpi4py uses another MPI than mpiexec" if started_by_mpi() else "no MPI started them"
            raise DistError(
                f"{started_size()} processes were started, but MPI sees {world.size}: {why}; "
                "start them with `mytorchrun launch`, mpiexec, or srun --mpi=pmix"
            )
        self.rank, self.size = world.rank, world.size
        error_report.install(self.rank, world.Abort)
        self.recorder = flight_recorder.FlightRecorder(self.rank)
        atexit.register(self.recorder.enter, EXITING)  # the first to be registered is the last to be called
        local = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.rank, local.size
        local.Free()
        self.comm = world.Dup()
        self._checker = ConsistencyChecker(world.Dup(), "WORLD", tuple(range(self.size)))
        self._count = 0

    def export(self) -> None:
        """Sets the environment variables of torchrun."""
        os.environ.update(
            RANK=str(self.rank),
            WORLD_SIZE=str(self.size),
            LOCAL_RANK=str(self.local_rank),
            LOCAL_WORLD_SIZE=str(self.local_size),
        )

    def barrier(self, description: str, timeout: float) -> None:
        """Waits until all ranks have called this with the same description.

        Raises:
            DistTimeout: some didn't in time.
            DistMismatch: some called another operation.
        """
        self._count += 1
        site = call_site()
        record = self.recorder.begin(self._count, "WORLD", description, "", "", site)
        check = self._checker.start(description, self._count, site)
        if not wait_until(check.test, timeout):
            self.recorder.end(record, flight_recorder.FAILED)
            own = self.recorder.read(record)
            raise DistTimeout(error_report.explain_timeout(self.rank, range(self.size), own, timeout))
        self.recorder.end(record)

    def split(self, ranks: tuple[int, ...]) -> MPI.Comm | None:
        """Returns a communicator of some ranks in their order. All ranks call this; others get None."""
        MPI = mpi()
        is_member = self.rank in ranks
        comm = self.comm.Split(0 if is_member else MPI.UNDEFINED, ranks.index(self.rank) if is_member else 0)
        return None if comm == MPI.COMM_NULL else comm

    def finalize(self) -> None:
        """Waits at the end of the program until all ranks have finished.

        Raises:
            DistMismatch: another rank still calls a collective.
            DistTimeout: another rank is stopped or gone, or runs longer than MYTORCH_EXIT_TIMEOUT seconds
                (half an hour by default).
        """
        self.recorder.enter(FINISHED)
        checks = [checker.finish() for checker in checkers]

        def all_finished() -> bool:
            for checker in checkers:
                checker.answer_queries()
            return all([check.test() for check in checks])

        limit, step = exit_seconds(), seconds()
        waited = 0.0
        while not wait_until(all_finished, min(step, limit)):
            waited += step
            stuck = self._stuck_ranks()
            if stuck or waited >= limit:
                why = stuck or "they are still running"
                raise DistTimeout(f"rank {self.rank} waited {waited:g} s for the others to finish: {why}")
        self.recorder.enter(LEAVING)

    def _stuck_ranks(self) -> str:
        """Returns which ranks of this machine will never finish."""
        flights = flight_recorder.read_all(os.environ.get(RUN_FOLDER_VARIABLE))
        states = {rank: state_of(flight.pid) for rank, flight in flights.items()}
        return ", ".join(
            f"rank {rank} (process {flights[rank].pid}, last {flights[rank].last}) is {state}"
            for rank, state in states.items()
            if state != "running" and not flights[rank].finished
        )


def broadcast_bytes(comm: MPI.Comm, data: bytes | None, timeout: float) -> bytes:
    """Returns on all ranks of a communicator the bytes, at most 128, that its rank 0 passes.

    Raises:
        DistTimeout: they didn't arrive in time.
    """
    buffer = bytearray(data or b"").ljust(128, b"\0")
    request = comm.Ibcast([buffer, mpi().BYTE], root=0)
    if not wait_until(request.Test, timeout):
        raise DistTimeout(f"rank {comm.rank} of the group: received nothing from rank 0 within {timeout:g} s")
    return bytes(buffer)


_context: MPIContext | None = None


def mpi_context() -> MPIContext:
    """Returns the context of this process; the first call starts MPI."""
    global _context
    if _context is None:
        _context = MPIContext()
    return _context
