"""
Do all ranks of a group want the same? A channel compares what they are about to do.

Beside every collective runs a tiny one of our own, on a communicator of its own: the maximum over ranks of
(h, -h), where h is a checksum of the operation, its shape, dtype and arguments. All h are equal exactly if
max(h) = -max(-h). Else the ranks exchange descriptions, and each raises an error that names all of them.

A rank that has come to the end of the program says so in the same way, on all its channels: those who still
want something from it learn it at once. Who waits for a message from it takes part in no comparison, so it
asks, and is answered when that rank ends (`peer_watch.py`).
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from typing import Any

import numpy as np

from .environment import mpi
from .errors import DistMismatch
from .polling import wait_until

_DESCRIPTION_BYTES = 384
_EXPLAIN_SECONDS = 5.0
_ASK, _ENDED = 1, 2  # tags
FINISHED = "the end of the program"

channels: list[Channel] = []  # of every group that this process was ever in


class Channel:
    """The channel of a group.

    Args:
        comm: a communicator that nobody else uses.
        name: of the group.
        ranks: the global rank of each of its members.
    """

    def __init__(self, comm: Any, name: str, ranks: tuple[int, ...]):
        self.comm, self.name, self.ranks = comm, name, ranks
        # Comparisons may be under way when two ranks begin to explain themselves: MPI matches what is called
        # first on a communicator with what others call first there, so explanations have their own.
        self._explanations = comm.Dup()
        self._open: deque[Comparison] = deque()  # what is not over, the oldest first
        self._lock, self._error = threading.Lock(), ""
        self._finished: tuple[int, ...] = ()
        self._asked: set[int] = set()
        channels.append(self)

    def compare(self, wanted: str, seq: int, site: str) -> Comparison:
        """Begin to compare what this rank wants with what the others want."""
        comparison = Comparison(self, wanted, seq, site)
        self._open.append(comparison)
        return comparison

    def advance(self) -> None:
        """Look at the comparisons in their order, so that all ranks find the same first one that fails.

        Raises:
            DistMismatch: one did.
        """
        with self._lock:  # the watchdog looks, too
            while not self._error and self._open and self._open[0].arrived():
                if self._open[0].agrees():
                    self._open.popleft().over = True
                else:
                    self._explain(self._open[0])
            if self._error:
                raise DistMismatch(self._error, self._finished)

    def _explain(self, comparison: Comparison) -> None:
        """Exchange what the ranks wanted."""
        text = f"{comparison.wanted}\0{comparison.site}".encode()[:_DESCRIPTION_BYTES]
        mine = np.frombuffer(text.ljust(_DESCRIPTION_BYTES, b"\0"), np.uint8)
        everybodys = np.empty((len(self.ranks), _DESCRIPTION_BYTES), np.uint8)
        MPI = mpi()
        request = self._explanations.Iallgather([mine, MPI.BYTE], [everybodys, MPI.BYTE])
        head = f"the ranks of group {self.name} don't agree at operation #{comparison.seq}"
        if not wait_until(request.Test, _EXPLAIN_SECONDS):
            self._error = f"{head}; this one wants {comparison.wanted} at {comparison.site}"
            return
        wanted = {}
        for rank, row in zip(self.ranks, everybodys, strict=True):
            what, _, site = row.tobytes().rstrip(b"\0").decode(errors="replace").partition("\0")
            wanted[rank] = (what, site)
        self._finished = tuple(rank for rank, (what, _) in wanted.items() if what == FINISHED)
        self._error = "\n".join([f"{head}:", *_lines(wanted)])

    def ask(self, peer: int) -> None:
        """Let a rank of the group say so when it comes to its end; `has_ended` hears it."""
        if peer not in self._asked:
            self._asked.add(peer)
            self.comm.Isend(_nothing(), dest=peer, tag=_ASK)

    def has_ended(self, peer: int) -> bool:
        """Has a rank that was asked come to the end of the program?"""
        return self.comm.Iprobe(source=peer, tag=_ENDED)

    def answer(self) -> None:
        """Tell those who have asked that this rank is at the end of the program."""
        MPI = mpi()
        status = MPI.Status()
        while self.comm.Iprobe(source=MPI.ANY_SOURCE, tag=_ASK, status=status):
            self.comm.Recv(_nothing(), source=status.Get_source(), tag=_ASK)
            self.comm.Isend(_nothing(), dest=status.Get_source(), tag=_ENDED)


class Comparison:
    """One exchange on a channel; `test` says whether it is over."""

    __slots__ = ("wanted", "seq", "site", "over", "_channel", "_sums", "_request")

    def __init__(self, channel: Channel, wanted: str, seq: int, site: str):
        self.wanted, self.seq, self.site, self.over = wanted, seq, site, False
        self._channel = channel
        checksum = zlib.crc32(wanted.encode())
        self._sums = np.array([checksum, -checksum])
        MPI = mpi()
        self._request = channel.comm.Iallreduce(MPI.IN_PLACE, self._sums, op=MPI.MAX)

    def test(self) -> bool:
        """Is it over, and do all ranks agree, on this and on all before?

        Raises:
            DistMismatch: they don't.
        """
        if not self.over:
            self._channel.advance()
        return self.over

    def arrived(self) -> bool:
        """Have all ranks said what they want?"""
        return self._request.Test()

    def agrees(self) -> bool:
        """Do they want the same?"""
        return self._sums[0] == -self._sums[1]


def _nothing() -> list:
    return [bytearray(), mpi().BYTE]


def _lines(wanted: dict[int, tuple[str, str]]) -> list[str]:
    """One line for all ranks that want the same at the same place."""
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank, entry in wanted.items():
        ranks_of.setdefault(entry, []).append(rank)
    return [
        f"  rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {what} at {site}"
        for (what, site), ranks in ranks_of.items()
    ]
