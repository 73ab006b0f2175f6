"""
Do all ranks of a group want the same? A channel compares what they are about to do.

Beside every collective runs a tiny one of our own, on a communicator of its own: the maximum over ranks of
(h, -h), where h is a checksum of the operation, its shape, dtype and arguments. All h are equal exactly if
max(h) = -max(-h). Else the ranks exchange descriptions, and each raises an error that names all of them.

A rank that has come to the end of the program says so in the same way, on all its channels: those who still
want something from it learn it at once.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from .environment import mpi
from .errors import DistError, DistMismatch
from .polling import wait_until

_DESCRIPTION_BYTES = 384
_EXPLAIN_SECONDS = 5.0
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
        channels.append(self)

    def compare(self, wanted: str, seq: int, site: str) -> Comparison:
        """Begin to compare what this rank wants with what the others want."""
        return Comparison(self, wanted, seq, site)


class Comparison:
    """One exchange on a channel; `test` says whether it is over."""

    __slots__ = ("_channel", "_wanted", "_seq", "_site", "_sums", "_request")

    def __init__(self, channel: Channel, wanted: str, seq: int, site: str):
        self._channel, self._wanted, self._seq, self._site = channel, wanted, seq, site
        checksum = zlib.crc32(wanted.encode())
        self._sums = np.array([checksum, -checksum])
        MPI = mpi()
        self._request = channel.comm.Iallreduce(MPI.IN_PLACE, self._sums, op=MPI.MAX)

    def test(self) -> bool:
        """Is it over, and do all ranks agree?

        Raises:
            DistMismatch: they don't.
        """
        if self._request is None:
            return True
        if not self._request.Test():
            return False
        self._request = None
        if self._sums[0] != -self._sums[1]:
            raise self._explain()
        return True

    def _explain(self) -> DistError:
        mine = f"{self._wanted}\0{self._site}".encode()[:_DESCRIPTION_BYTES].ljust(_DESCRIPTION_BYTES, b"\0")
        send = np.frombuffer(mine, np.uint8)
        everybodys = np.empty((len(self._channel.ranks), _DESCRIPTION_BYTES), np.uint8)
        MPI = mpi()
        request = self._channel.comm.Iallgather([send, MPI.BYTE], [everybodys, MPI.BYTE])
        head = f"the ranks of group {self._channel.name} don't agree at operation #{self._seq}"
        if not wait_until(request.Test, _EXPLAIN_SECONDS):
            return DistMismatch(f"{head}; this one wants {self._wanted} at {self._site}")
        wanted = {}
        for rank, row in zip(self._channel.ranks, everybodys, strict=True):
            what, _, site = row.tobytes().rstrip(b"\0").decode(errors="replace").partition("\0")
            wanted[rank] = (what, site)
        finished = tuple(rank for rank, (what, _) in wanted.items() if what == FINISHED)
        return DistMismatch("\n".join([f"{head}:", *_lines(wanted)]), finished)


def _lines(wanted: dict[int, tuple[str, str]]) -> list[str]:
    """One line for all ranks that want the same at the same place."""
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank, entry in wanted.items():
        ranks_of.setdefault(entry, []).append(rank)
    return [
        f"  rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {what} at {site}"
        for (what, site), ranks in ranks_of.items()
    ]
