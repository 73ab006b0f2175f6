"""The engine on MPI: arrays in the CPU's memory, and those of GPUs by way of it.

All operations are the non-blocking ones, so that a deadline can be kept. Data that only moves travels as
bytes, whatever its dtype. Halves are summed in float32, for MPI knows no half, and their sum needs the bits.

Source: MPI 4.1, chapter 6 (collectives), https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...device import CPU, device_of, move
from ..environment import mpi
from ..reduce_op import ReduceOp, math_dtype
from .pending import Pending

_OPS = {
    ReduceOp.SUM: "SUM", ReduceOp.AVG: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX", ReduceOp.BAND: "BAND", ReduceOp.BOR: "BOR", ReduceOp.BXOR: "BXOR",
}  # fmt: skip
# A bool is 0 or 1 in a byte: the sum is "any", the product "all".
_BOOL_OPS = _OPS | {ReduceOp.SUM: "MAX", ReduceOp.PRODUCT: "MIN"}


class MpiEngine:
    """Collectives over a communicator."""

    def __init__(self, comm: Any):
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self._mpi = mpi()

    def all_reduce(self, x: Any, op: ReduceOp) -> Pending:
        values = _for_maths(x)
        request = self.comm.Iallreduce(self._mpi.IN_PLACE, values, op=self._op(op, x.dtype))
        return Pending(request.Test, lambda: self._store(values, x, op), values)

    def reduce(self, x: Any, root: int, op: ReduceOp) -> Pending:
        values, here = _for_maths(x), self.rank == root
        send, out = (self._mpi.IN_PLACE, values) if here else (values, None)
        request = self.comm.Ireduce(send, out, op=self._op(op, x.dtype), root=root)
        return Pending(request.Test, (lambda: self._store(values, x, op)) if here else _nothing, values)

    def reduce_scatter(self, out: Any, x: Any, op: ReduceOp) -> Pending:
        values = _for_maths(x)
        result = np.empty(out.shape, values.dtype)
        request = self.comm.Ireduce_scatter_block(values, result, op=self._op(op, x.dtype))
        return Pending(request.Test, lambda: self._store(result, out, op), (values, result))

    def broadcast(self, x: Any, root: int) -> Pending:
        values = _on_host(x)
        request = self.comm.Ibcast(self._bytes(values), root=root)
        return Pending(request.Test, _copy_back(values, x), values)

    def all_gather(self, out: Any, x: Any) -> Pending:
        values, result = _on_host(x), _on_host(out)
        request = self.comm.Iallgather(self._bytes(values), self._bytes(result))
        return Pending(request.Test, _copy_back(result, out), (values, result))

    def gather(self, out: Any, x: Any, root: int) -> Pending:
        values, result = _on_host(x), None if out is None else _on_host(out)
        to = None if out is None else self._bytes(result)
        request = self.comm.Igather(self._bytes(values), to, root=root)
        return Pending(request.Test, _copy_back(result, out), (values, result))

    def scatter(self, out: Any, x: Any, root: int) -> Pending:
        values, result = None if x is None else _on_host(x), _on_host(out)
        send = None if x is None else self._bytes(values)
        request = self.comm.Iscatter(send, self._bytes(result), root=root)
        return Pending(request.Test, _copy_back(result, out), (values, result))

    def all_to_all(self, out: Any, x: Any, out_counts: list[int], counts: list[int]) -> Pending:
        values, result, size = _on_host(x), _on_host(out), x.dtype.itemsize
        send, to = [n * size for n in counts], [n * size for n in out_counts]
        request = self.comm.Ialltoallv(
            [_as_bytes(values), (send, _offsets(send)), self._mpi.BYTE],
            [_as_bytes(result), (to, _offsets(to)), self._mpi.BYTE],
        )
        return Pending(request.Test, _copy_back(result, out), (values, result))

    def send(self, x: Any, peer: int, tag: int) -> Pending:
        values = _on_host(x)
        request = self.comm.Isend(self._bytes(values), dest=peer, tag=tag)
        return Pending(request.Test, keep=values)

    def recv(self, x: Any, peer: int | None, tag: int) -> Pending:
        """`pending.keep` is the rank that it came from, once it is over."""
        result = _on_host(x)
        source = self._mpi.ANY_SOURCE if peer is None else peer
        request, status = self.comm.Irecv(self._bytes(result), source=source, tag=tag), self._mpi.Status()
        store = _copy_back(result, x)

        def finish():
            store()
            pending.keep = status.Get_source()

        pending = Pending(lambda: request.Test(status), finish, result)
        return pending

    def _op(self, op: ReduceOp, dtype: np.dtype) -> Any:
        return getattr(self._mpi, (_BOOL_OPS if dtype.kind == "b" else _OPS)[op])

    def _bytes(self, x: np.ndarray) -> list:
        return [_as_bytes(x), self._mpi.BYTE]

    def _store(self, values: np.ndarray, x: Any, op: ReduceOp) -> None:
        if op is ReduceOp.AVG:
            values /= self.size
        _copy_back(values, x)()


def _nothing() -> None:
    pass


def _as_bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def _offsets(counts: list[int]) -> list[int]:
    return [sum(counts[:i]) for i in range(len(counts))]


def _on_host(x: Any) -> np.ndarray:
    """`x` itself if it is on the CPU, else a copy there."""
    return move(x, CPU)


def _for_maths(x: Any) -> np.ndarray:
    """The values of `x` on the CPU, in a dtype that MPI can sum; `x` itself where that's possible."""
    values = _on_host(x)
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    return values.astype(math_dtype(values.dtype), copy=False)


def _copy_back(values: np.ndarray | None, x: Any) -> Callable[[], None]:
    """What puts `values` where they belong, if they aren't there already."""
    if values is None or values is x:
        return _nothing

    def store():
        if isinstance(x, np.ndarray):
            if not np.shares_memory(values, x):
                x[...] = values
        else:
            x[...] = move(values.astype(x.dtype, copy=False), device_of(x))

    return store
