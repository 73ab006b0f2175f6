"""
Consistency checks: whether all ranks of a group call the same collective, and whether a peer has exited.

Next to each collective runs a small all-reduce on a separate communicator: the maximum over ranks of (h, -h),
where h is a fingerprint (checksum) of the operation, its shape, dtype and arguments. All h are equal if and
only if max(h) = -max(-h). Otherwise the ranks exchange descriptions, and each raises an error that lists all.

A rank that has finished its program starts the same check on all its groups, so that ranks that still call a
collective notice at once. A rank that waits in send or recv takes part in no check. So it sends its peer a
query, which the peer answers when it has finished (`PeerWatch`).
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from .environment import mpi
from .errors import DistMismatch
from .polling import wait_until

if TYPE_CHECKING:
    from mpi4py import MPI

_DESCRIPTION_BYTES = 384
_EXPLAIN_SECONDS = 5.0
_QUERY, _FINISHED = 1, 2  # message tags
_QUERY_AFTER = 0.05  # seconds of waiting for a message
_LATE_MESSAGE = 0.5  # seconds after the answer, for messages that were sent before it
FINISHED = "the end of the program"

checkers: list[ConsistencyChecker] = []  # of every group that this process was ever in


class ConsistencyChecker:
    """The consistency checks of a group.

    Args:
        comm: a communicator for these checks alone.
        name: of the group.
        ranks: the global rank of each member.
    """

    def __init__(self, comm: MPI.Comm, name: str, ranks: tuple[int, ...]):
        self.comm, self.name, self.ranks = comm, name, ranks
        # Checks may be in flight when two ranks start to exchange descriptions. MPI matches collectives by
        # the order of calls on a communicator, so descriptions need another one.
        self._description_comm = comm.Dup()
        self._pending: deque[ConsistencyCheck] = deque()  # the oldest first
        self._lock, self._error, self._seq = threading.Lock(), "", 0
        self._finished: tuple[int, ...] = ()
        self._queried: set[int] = set()
        checkers.append(self)

    def start(self, description: str, seq: int, site: str) -> ConsistencyCheck:
        """Starts to compare this rank's operation with those of the other ranks."""
        self._seq = seq
        check = ConsistencyCheck(self, description, seq, site)
        self._pending.append(check)
        return check

    def finish(self) -> ConsistencyCheck:
        """Starts to compare the end of this rank's program, which takes the number of the next operation."""
        return self.start(FINISHED, self._seq + 1, "the end")

    def advance(self) -> None:
        """Completes checks in their order, so that all ranks find the same first one that fails.

        Raises:
            DistMismatch: the ranks called different operations.
        """
        with self._lock:  # the watchdog's thread calls this, too
            while not self._error and self._pending and self._pending[0].has_arrived():
                if self._pending[0].agrees():
                    self._pending.popleft().completed = True
                else:
                    self._explain(self._pending[0])
            if self._error:
                raise DistMismatch(self._error, self._finished)

    def _explain(self, check: ConsistencyCheck) -> None:
        """Exchanges the ranks' descriptions of their operations."""
        text = f"{check.description}\0{check.site}".encode()[:_DESCRIPTION_BYTES]
        own = np.frombuffer(text.ljust(_DESCRIPTION_BYTES, b"\0"), np.uint8)
        table = np.empty((len(self.ranks), _DESCRIPTION_BYTES), np.uint8)
        BYTE = mpi().BYTE
        request = self._description_comm.Iallgather([own, BYTE], [table, BYTE])
        if not wait_until(request.Test, _EXPLAIN_SECONDS):
            head = _head(self.name, check.seq)
            self._error = f"{head}; this one called {check.description} at {check.site}"
            return
        calls = {}
        for rank, row in zip(self.ranks, table, strict=True):
            description, _, site = row.tobytes().rstrip(b"\0").decode(errors="replace").partition("\0")
            calls[rank] = (description, site)
        self._finished = tuple(rank for rank, (description, _) in calls.items() if description == FINISHED)
        self._error = disagreement(self.name, check.seq, calls)

    def watch(self, peers: tuple[int, ...]) -> PeerWatch:
        """Returns what notices that no peer of a send or receive can answer any more."""
        return PeerWatch(self, peers)

    def query_finished(self, peer: int) -> None:
        """Asks a rank of the group to answer when it has finished; `has_finished` sees the answer."""
        if peer not in self._queried:
            self._queried.add(peer)
            self.comm.Isend(_empty_message(), dest=peer, tag=_QUERY)

    def has_finished(self, peer: int) -> bool:
        """Returns whether a rank that was queried has finished its program."""
        return self.comm.Iprobe(source=peer, tag=_FINISHED)

    def answer_queries(self) -> None:
        """Answers the ranks that have queried: this rank has finished."""
        MPI = mpi()
        status = MPI.Status()
        while self.comm.Iprobe(source=MPI.ANY_SOURCE, tag=_QUERY, status=status):
            self.comm.Recv(_empty_message(), source=status.Get_source(), tag=_QUERY)
            self.comm.Isend(_empty_message(), dest=status.Get_source(), tag=_FINISHED)


class ConsistencyCheck:
    """The check of one operation."""

    __slots__ = ("description", "seq", "site", "completed", "_checker", "_fingerprint", "_request")

    def __init__(self, checker: ConsistencyChecker, description: str, seq: int, site: str):
        self.description, self.seq, self.site, self.completed = description, seq, site, False
        self._checker = checker
        checksum = zlib.crc32(description.encode())
        self._fingerprint = np.array([checksum, -checksum])
        MPI = mpi()
        self._request = checker.comm.Iallreduce(MPI.IN_PLACE, self._fingerprint, op=MPI.MAX)

    def test(self) -> bool:
        """Returns whether it is complete, and all ranks agree on this operation and those before it.

        Raises:
            DistMismatch: they don't.
        """
        if not self.completed:
            self._checker.advance()
        return self.completed

    def has_arrived(self) -> bool:
        """Returns whether all ranks have started the check."""
        return self._request.Test()

    def agrees(self) -> bool:
        """Returns whether all fingerprints are equal."""
        return self._fingerprint[0] == -self._fingerprint[1]


class PeerWatch:
    """Detects that no peer of a send or receive can answer any more, since all have finished their programs.

    Peers are queried only after a short wait, so a message that arrives soon costs nothing. Messages that a
    peer sent before it finished may arrive after its answer, so there is a delay for those.

    Args:
        checker: of the group.
        peers: the group ranks that may be on the other side; all others for a receive from any rank.
    """

    def __init__(self, checker: ConsistencyChecker, peers: tuple[int, ...]):
        self._checker, self._peers = checker, peers
        self._started: float | None = None  # when the wait began
        self._finished: float | None = None  # when all peers were known to have finished

    def are_gone(self) -> bool:
        """Returns whether all peers have finished and no message can be in flight.

        Raises:
            DistMismatch: the ranks don't agree on an earlier operation.
        """
        now = time.monotonic()
        if self._started is None:
            self._started = now
        if now - self._started < _QUERY_AFTER:
            return False
        self._checker.advance()  # other ranks may need this one to explain an earlier mismatch
        if self._finished is None:
            for peer in self._peers:
                self._checker.query_finished(peer)
            if not all(self._checker.has_finished(peer) for peer in self._peers):
                return False
            self._finished = now
        return now - self._finished > _LATE_MESSAGE

    def error(self, operation: str) -> DistMismatch:
        """Returns the error of an operation whose peers are gone."""
        ranks = tuple(self._checker.ranks[peer] for peer in self._peers)
        names = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        return DistMismatch(f"{names} reached the end of the program; {operation}", ranks)


def _empty_message() -> list:
    return [bytearray(), mpi().BYTE]


def disagreement(group: str, seq: int, calls: dict[int, tuple[str, str]]) -> str:
    """Returns the text of an error: a line for each operation and call site, with the ranks that called it.

    Args:
        seq: the number of the operation in the group.
        calls: by rank, the operation and where it was called.
    """
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank, call in calls.items():
        ranks_of.setdefault(call, []).append(rank)
    lines = [
        f"  rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {description} at {site}"
        for (description, site), ranks in ranks_of.items()
    ]
    return "\n".join([f"{_head(group, seq)}:", *lines])


def _head(group: str, seq: int) -> str:
    return f"the ranks of group {group} don't agree at operation #{seq}"
