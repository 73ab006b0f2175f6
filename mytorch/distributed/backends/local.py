"""The backend of `single` and `fake`: a process without peers, so no data is moved."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.device import RawArray
from ..reduce_op import ReduceOp
from . import Request


class LocalBackend:
    """Uses this rank's data in place of that of the other ranks, and zeros where the shapes differ.

    With one rank the results are exact. With more (backend `fake`, for tests) a reduction changes nothing.
    """

    def __init__(self, size: int, rank: int):
        self.size, self.rank = size, rank

    def all_reduce(self, x: RawArray, op: ReduceOp) -> Request:
        return Request()

    def broadcast(self, x: RawArray, root: int) -> Request:
        return Request()

    def reduce(self, x: RawArray, root: int, op: ReduceOp) -> Request:
        return Request()

    def all_gather(self, out: RawArray, x: RawArray, counts: Sequence[int] | None = None) -> Request:
        if counts is None:
            out[...] = x
        else:
            out[...] = 0
            out[_slice_of(counts, self.rank)] = x.reshape(-1)
        return Request()

    def reduce_scatter(
        self, out: RawArray, x: RawArray, op: ReduceOp, counts: Sequence[int] | None = None
    ) -> Request:
        out[...] = x[self.rank] if counts is None else x[_slice_of(counts, self.rank)].reshape(out.shape)
        return Request()

    def gather(self, out: RawArray | None, x: RawArray, root: int) -> Request:
        if out is not None:
            out[...] = x
        return Request()

    def scatter(self, out: RawArray, x: RawArray | None, root: int) -> Request:
        if x is not None:
            out[...] = x[self.rank]
        return Request()

    def all_to_all(
        self, out: RawArray, x: RawArray, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Request:
        if out.size == x.size:
            out[...] = x
        return Request()

    def send(self, x: RawArray, peer: int, tag: int) -> Request:
        return Request()

    def recv(self, x: RawArray, peer: int | None, tag: int) -> Request:
        return Request(keep=peer or 0)


def _slice_of(counts: Sequence[int], rank: int) -> slice:
    """Returns where a rank's elements are in a flat array."""
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])
