"""The engine of backends `single` and `fake`: nobody is there but this rank, so nothing travels."""

from __future__ import annotations

from typing import Any

from ..reduce_op import ReduceOp
from .request import Request


class LocalEngine:
    """Where data of others would come, this rank's own stands; zeros where theirs has another shape.

    With one rank that is exact. With more (backend `fake`, for tests) a reduction leaves values as they are.
    """

    def __init__(self, size: int, rank: int):
        self.size, self.rank = size, rank

    def all_reduce(self, x: Any, op: ReduceOp) -> Request:
        return Request()

    def broadcast(self, x: Any, root: int) -> Request:
        return Request()

    def reduce(self, x: Any, root: int, op: ReduceOp) -> Request:
        return Request()

    def all_gather(self, out: Any, x: Any, counts: list[int] | None = None) -> Request:
        if counts is None:
            out[...] = x
        else:
            out[...] = 0
            out[_piece(counts, self.rank)] = x.reshape(-1)
        return Request()

    def reduce_scatter(self, out: Any, x: Any, op: ReduceOp, counts: list[int] | None = None) -> Request:
        out[...] = x[self.rank] if counts is None else x[_piece(counts, self.rank)].reshape(out.shape)
        return Request()

    def gather(self, out: Any, x: Any, root: int) -> Request:
        if out is not None:
            out[...] = x
        return Request()

    def scatter(self, out: Any, x: Any, root: int) -> Request:
        if x is not None:
            out[...] = x[self.rank]
        return Request()

    def all_to_all(self, out: Any, x: Any, out_counts: list[int], counts: list[int]) -> Request:
        if out.size == x.size:
            out[...] = x
        return Request()

    def send(self, x: Any, peer: int, tag: int) -> Request:
        return Request()

    def recv(self, x: Any, peer: int | None, tag: int) -> Request:
        return Request(keep=peer or 0)


def _piece(counts: list[int], rank: int) -> slice:
    """Where a rank's elements are in a flat array."""
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])
