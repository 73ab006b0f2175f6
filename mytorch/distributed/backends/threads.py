"""The backend of ranks that are threads of one process: see `worlds`. What a rank gives is copied at once."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from ...backends.device import RawArray, device_of, move, on
from ...core.op import as_raw
from ..consistency import disagreement
from ..errors import DistError, DistMismatch
from ..reduce_op import ReduceOp, reduction_dtype
from . import Request

_UFUNCS = {
    ReduceOp.SUM: np.add, ReduceOp.AVG: np.add, ReduceOp.PRODUCT: np.multiply, ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum, ReduceOp.BAND: np.bitwise_and, ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
_BOOL_UFUNCS = _UFUNCS | {ReduceOp.SUM: np.logical_or, ReduceOp.PRODUCT: np.logical_and}


class Meeting:
    """One collective: what each rank of the group gives, and what is computed of it once all have.

    Args:
        size: of the group.
    """

    def __init__(self, size: int):
        self.size, self.given = size, {}
        self._result: Any = None

    def is_full(self) -> bool:
        """Returns whether all ranks have come."""
        return len(self.given) == self.size

    def result(self, compute: Callable[[list], Any]) -> Any:
        """Returns what `compute` makes of that which the ranks gave, in their order; it is called once."""
        if self._result is None:
            self._result = compute([self.given[rank] for rank in range(self.size)])
        return self._result


class Receive:
    """A receive of a rank; `sender` and `values` are those of its message, once there is one.

    Args:
        peer: the rank of the sender; None for any.
    """

    values: RawArray | None = None

    def __init__(self, peer: int | None):
        self._peer, self.sender = peer, -1

    def takes(self, sender: int, values: RawArray) -> bool:
        """Takes a message, if it is from the peer; returns whether it was."""
        if self._peer not in (None, sender):
            return False
        self.sender, self.values = sender, values
        return True


class Mailbox:
    """The messages to a rank with a tag: each goes to the first receive for it, in the order of both."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, RawArray]] = []
        self._receives: list[Receive] = []

    def put(self, sender: int, values: RawArray) -> None:
        """Gives a message to the receive that waits for it, or keeps it."""
        receive = next((receive for receive in self._receives if receive.takes(sender, values)), None)
        if receive is None:
            self._messages.append((sender, values))
        else:
            self._receives.remove(receive)

    def receive(self, peer: int | None) -> Receive:
        """Returns a receive with the first message from the peer, or one that waits for it."""
        receive = Receive(peer)
        found = next((i for i, message in enumerate(self._messages) if receive.takes(*message)), None)
        if found is None:
            self._receives.append(receive)
        else:
            del self._messages[found]
        return receive


class Exchange:
    """What the ranks of a world give each other: meetings, and messages on their way."""

    def __init__(self) -> None:
        self._meetings: dict[Hashable, Meeting] = {}
        self.mailboxes: defaultdict[Hashable, Mailbox] = defaultdict(Mailbox)

    def meet(self, key: Hashable, size: int, rank: int, given: Any) -> Meeting:
        """Returns the meeting of this key, at which the rank gives this; the key is free once all have."""
        meeting = self._meetings.setdefault(key, Meeting(size))
        meeting.given[rank] = given
        if meeting.is_full():
            del self._meetings[key]
        return meeting


class ThreadsBackend:
    """Collectives over an `Exchange`. Sums are in the order of the ranks.

    Args:
        name: of the group, the same on all its ranks.
        size, rank: of the group.
    """

    def __init__(self, exchange: Exchange, name: Hashable, size: int, rank: int):
        self.exchange, self.name, self.size, self.rank = exchange, name, size, rank
        self._count = 0

    def all_reduce(self, x: RawArray, op: ReduceOp) -> Request:
        return self._reduce(x, op, lambda total: _store(x, total))

    def reduce(self, x: RawArray, root: int, op: ReduceOp) -> Request:
        return self._reduce(x, op, lambda total: _store(x, total) if self.rank == root else None)

    def reduce_scatter(
        self, out: RawArray, x: RawArray, op: ReduceOp, counts: Sequence[int] | None = None
    ) -> Request:
        def store(total: RawArray) -> None:
            _store(out, total[self.rank] if counts is None else _split(total, counts)[self.rank])

        return self._reduce(x, op, store)

    def broadcast(self, x: RawArray, root: int) -> Request:
        given = x.copy() if self.rank == root else None
        return self._meet(given, lambda found: _store(x, found[root]))

    def all_gather(self, out: RawArray, x: RawArray, counts: Sequence[int] | None = None) -> Request:
        def store(found: list[RawArray]) -> None:
            parts = [(out, rank) for rank in range(self.size)]
            if counts is not None:
                parts = [(part, ...) for part in _split(out, counts)]
            for (part, index), values in zip(parts, found, strict=True):
                _store(part, values, index)

        return self._meet(x.copy(), store)

    def gather(self, out: RawArray | None, x: RawArray, root: int) -> Request:
        def store(found: list[RawArray]) -> None:
            for rank, values in enumerate(found if out is not None else ()):
                _store(out, values, rank)

        return self._meet(x.copy(), store)

    def scatter(self, out: RawArray, x: RawArray | None, root: int) -> Request:
        given = None if x is None else x.copy()
        return self._meet(given, lambda found: _store(out, found[root][self.rank]))

    def all_to_all(
        self, out: RawArray, x: RawArray, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Request:
        def store(found: list[tuple[RawArray, Sequence[int]]]) -> None:
            incoming = [counts[self.rank] for _, counts in found]
            if incoming != [*out_counts]:
                raise DistMismatch(
                    f"all_to_all: rank {self.rank} of the group expects {list(out_counts)} elements from the "
                    f"ranks, but they send {incoming}"
                )
            for part, (values, sent) in zip(_split(out, out_counts), found, strict=True):
                _store(part, _split(values, sent)[self.rank])

        return self._meet((x.copy(), counts), store)

    def send(self, x: RawArray, peer: int, tag: int) -> Request:
        self.exchange.mailboxes[self.name, peer, tag].put(self.rank, x.copy())
        return Request()

    def recv(self, x: RawArray, peer: int | None, tag: int) -> Request:
        """Receives into `x`; `keep` of the request is the rank of the sender once it is complete."""
        receive = self.exchange.mailboxes[self.name, self.rank, tag].receive(peer)

        def finish() -> None:
            request.keep, values = receive.sender, receive.values
            if values.nbytes != x.nbytes:
                raise DistError(
                    f"a tensor of {x.nbytes} bytes can't receive a message of {values.nbytes} bytes"
                )
            _store(x, values.reshape(-1).view(x.dtype).reshape(x.shape))

        request = Request(lambda: receive.values is not None, finish)
        return request

    def _reduce(self, x: RawArray, op: ReduceOp, store: Callable[[RawArray], None]) -> Request:
        return self._meet(x.copy(), store, functools.partial(_reduced, op=op))

    def _meet(
        self, given: Any, store: Callable[[Any], None], compute: Callable[[list], Any] = list
    ) -> Request:
        self._count += 1
        meeting = self.exchange.meet((self.name, self._count), self.size, self.rank, given)
        return Request(meeting.is_full, lambda: store(meeting.result(compute)))


class ThreadsChecker:
    """Compares what the ranks of a group call, as `ConsistencyChecker` does between processes.

    Args:
        name, rank: of the backend.
        ranks: the global rank of each member.
    """

    def __init__(self, exchange: Exchange, name: Hashable, group: str, ranks: tuple[int, ...], rank: int):
        self._exchange, self._name, self._group, self._ranks, self._rank = exchange, name, group, ranks, rank

    def start(self, description: str, seq: int, site: str) -> ThreadsCheck:
        """Starts to compare this rank's operation with those of the other ranks."""
        key = self._name, "check", seq
        meeting = self._exchange.meet(key, len(self._ranks), self._rank, (description, site))
        return ThreadsCheck(meeting, self._group, self._ranks, seq)

    def watch(self, peers: tuple[int, ...]) -> None:
        """Returns None: a rank whose peers have ended sees it as a deadlock."""


class ThreadsCheck:
    """The check of one operation."""

    def __init__(self, meeting: Meeting, group: str, ranks: tuple[int, ...], seq: int):
        self.has_arrived = meeting.is_full
        self._meeting, self._group, self._ranks, self._seq = meeting, group, ranks, seq

    def test(self) -> bool:
        """Returns whether all ranks have called the operation.

        Raises:
            DistMismatch: they called others, or with other arguments.
        """
        if not self.has_arrived():
            return False
        calls = dict(zip(self._ranks, self._meeting.result(list), strict=True))
        if len({description for description, _ in calls.values()}) > 1:
            raise DistMismatch(disagreement(self._group, self._seq, calls))
        return True


def _reduced(parts: list[RawArray], op: ReduceOp) -> RawArray:
    """Returns the reduction of arrays, in the order of the ranks."""
    dtype = reduction_dtype(parts[0].dtype)
    ufunc = (_BOOL_UFUNCS if dtype.kind == "b" else _UFUNCS)[op]
    target = device_of(parts[0])
    with on(target):
        total = functools.reduce(ufunc, [move(part, target).astype(dtype) for part in parts])
        return total / len(parts) if op is ReduceOp.AVG else total


def _split(vector: RawArray, counts: Sequence[int]) -> list[RawArray]:
    """Returns the parts of a vector, counts[r] elements for rank r."""
    ends = [*itertools.accumulate(counts, initial=0)]
    return [vector.reshape(-1)[start:end] for start, end in itertools.pairwise(ends)]


def _store(x: RawArray, values: RawArray | np.generic, index: int | EllipsisType = ...) -> None:
    target = device_of(x)
    with on(target), np.errstate(all="ignore"):  # inf is a value
        values = move(as_raw(values), target).reshape(x[index].shape)
        x[index] = values.astype(x.dtype)
