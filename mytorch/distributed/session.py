"""The session: this process among all that were started together. It lasts as long as the process."""

from __future__ import annotations

import os
from typing import Any

from . import failure, recorder
from .channel import FINISHED, Channel, channels
from .environment import RUN_FOLDER_VARIABLE, by_mpi, mpi, seconds, started_size
from .errors import DistError, DistTimeout
from .polling import wait_until

EXIT_VARIABLE = "MYTORCH_EXIT_TIMEOUT"
_EXIT_SECONDS = 1800.0  # for the slowest rank to finish, while it is seen to run


class Session:
    """All ranks, over MPI.

    Attributes:
        rank, size: among all.
        local_rank, local_size: among those on this machine.
        comm: a communicator to make others from.
        recorder: of this process.

    Raises:
        DistError: MPI is missing, or sees fewer processes than were started.
    """

    def __init__(self):
        MPI = mpi()
        world = MPI.COMM_WORLD
        if world.size < started_size():
            how = "mpi4py belongs to another MPI than the starter" if by_mpi() else "no MPI started them"
            raise DistError(
                f"{started_size()} processes were started, but MPI sees {world.size}: {how}; "
                "start them with `mytorchrun launch`, mpiexec, or srun --mpi=pmix"
            )
        self.rank, self.size = world.rank, world.size
        failure.install(self.rank, world.Abort)
        self.recorder = recorder.Recorder(self.rank)
        local = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.rank, local.size
        local.Free()
        self.comm = world.Dup()
        self._channel = Channel(world.Dup(), "WORLD", tuple(range(self.size)))
        self._count = 0

    def export(self) -> None:
        """Tell the script, by the variables that launchers set."""
        os.environ.update(
            RANK=str(self.rank),
            WORLD_SIZE=str(self.size),
            LOCAL_RANK=str(self.local_rank),
            LOCAL_WORLD_SIZE=str(self.local_size),
        )

    def meet(self, what: str, timeout: float) -> None:
        """Wait until all ranks have come to do `what`.

        Raises:
            DistTimeout: they didn't.
            DistMismatch: they want something else.
        """
        self._count += 1
        site = recorder.call_site()
        record = self.recorder.begin(self._count, "WORLD", what, "", "", site)
        comparison = self._channel.compare(what, self._count, site)
        if not wait_until(comparison.test, timeout):
            self.recorder.end(record, recorder.FAILED)
            mine = self.recorder.read(record)
            raise DistTimeout(failure.explain_timeout(self.rank, range(self.size), mine, timeout))
        self.recorder.end(record)

    def communicator(self, ranks: tuple[int, ...]) -> Any:
        """A communicator for some ranks, in their order; all ranks call this, and those outside get None."""
        MPI = mpi()
        member = self.rank in ranks
        comm = self.comm.Split(0 if member else MPI.UNDEFINED, ranks.index(self.rank) if member else 0)
        return None if comm == MPI.COMM_NULL else comm

    def leave(self) -> None:
        """Come to the end of the program together.

        Raises:
            DistMismatch: another rank still wants something from this one.
            DistTimeout: another rank stopped, or takes half an hour longer (MYTORCH_EXIT_TIMEOUT, seconds).
        """
        self.recorder.finish()
        comparisons = [channel.compare(FINISHED, 0, "the end") for channel in channels]

        def together() -> bool:
            for channel in channels:
                channel.answer()
            return all([comparison.test() for comparison in comparisons])

        limit, step = seconds(os.environ.get(EXIT_VARIABLE) or _EXIT_SECONDS), seconds()
        waited = 0.0
        while not wait_until(together, min(step, limit)):
            waited += step
            stuck = self._stuck()
            if stuck or waited >= limit:
                why = stuck or "they are still running"
                raise DistTimeout(f"rank {self.rank} waited {waited:g} s for the others to finish: {why}")

    def _stuck(self) -> str:
        """Which ranks of this machine will never finish."""
        flights = recorder.read_all(os.environ.get(RUN_FOLDER_VARIABLE))
        states = {rank: failure.state_of(flight.pid) for rank, flight in flights.items()}
        return ", ".join(
            f"rank {rank} (process {flights[rank].pid}, last {flights[rank].last}) is {state}"
            for rank, state in states.items()
            if state != "running" and not flights[rank].finished
        )


def share(comm: Any, data: bytes | None, timeout: float) -> bytes:
    """The bytes that rank 0 of a communicator has, at most 128 of them, on all its ranks.

    Raises:
        DistTimeout: they didn't come.
    """
    buffer = bytearray(data or b"").ljust(128, b"\0")
    request = comm.Ibcast([buffer, mpi().BYTE], root=0)
    if not wait_until(request.Test, timeout):
        raise DistTimeout(f"rank {comm.rank} of the group: nothing came from its rank 0 within {timeout:g} s")
    return bytes(buffer)


_session: Session | None = None


def session() -> Session:
    """The session of this process; it begins at the first call."""
    global _session
    if _session is None:
        _session = Session()
    return _session
