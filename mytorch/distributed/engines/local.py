"""The engine of backends `single` and `fake`: nobody is there but this rank, so nothing travels."""

from __future__ import annotations

from typing import Any

from ..reduce_op import ReduceOp
from .pending import Pending


class LocalEngine:
    """Where data of others would come, this rank's own stands.

    With one rank that is exact. With more (backend `fake`, for tests) a reduction leaves values as they are.
    """

    def __init__(self, size: int, rank: int):
        self.size, self.rank = size, rank

    def all_reduce(self, x: Any, op: ReduceOp) -> Pending:
        return Pending()

    def broadcast(self, x: Any, root: int) -> Pending:
        return Pending()

    def reduce(self, x: Any, root: int, op: ReduceOp) -> Pending:
        return Pending()

    def all_gather(self, out: Any, x: Any) -> Pending:
        out[...] = x
        return Pending()

    def reduce_scatter(self, out: Any, x: Any, op: ReduceOp) -> Pending:
        out[...] = x[self.rank]
        return Pending()

    def gather(self, out: Any, x: Any, root: int) -> Pending:
        if out is not None:
            out[...] = x
        return Pending()

    def scatter(self, out: Any, x: Any, root: int) -> Pending:
        if x is not None:
            out[...] = x[self.rank]
        return Pending()

    def all_to_all(self, out: Any, x: Any, out_counts: list[int], counts: list[int]) -> Pending:
        if out.size == x.size:
            out[...] = x
        return Pending()

    def send(self, x: Any, peer: int, tag: int) -> Pending:
        return Pending()

    def recv(self, x: Any, peer: int | None, tag: int) -> Pending:
        return Pending()
