"""The engine on MPI: arrays in the CPU's memory, and those of GPUs by way of it.

All operations are the non-blocking ones, so that a deadline can be kept. Data that only moves travels as
bytes, whatever its dtype. Halves are summed in float32, for MPI knows no half, and their sum needs the bits.

Source: MPI 4.1, chapter 6 (collectives), https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device import CPU, device_of, move
from ..environment import mpi
from ..errors import DistError, DistMismatch
from ..polling import wait_until
from ..reduce_op import ReduceOp, math_dtype
from .request import Request

_OPS = {
    ReduceOp.SUM: "SUM", ReduceOp.AVG: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX", ReduceOp.BAND: "BAND", ReduceOp.BOR: "BOR", ReduceOp.BXOR: "BXOR",
}  # fmt: skip
# A bool is 0 or 1 in a byte: the sum is "any", the product "all".
_BOOL_OPS = _OPS | {ReduceOp.SUM: "MAX", ReduceOp.PRODUCT: "MIN"}
_CANCEL_SECONDS = 1.0


class MpiEngine:
    """Collectives over a communicator."""

    def __init__(self, comm: Any):
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self._mpi = mpi()

    def all_reduce(self, x: Any, op: ReduceOp) -> Request:
        values = _for_maths(x)
        request = self.comm.Iallreduce(self._mpi.IN_PLACE, values, op=self._op(op, x.dtype))
        return Request(request.Test, lambda: self._store(values, x, op), values)

    def reduce(self, x: Any, root: int, op: ReduceOp) -> Request:
        values, here = _for_maths(x), self.rank == root
        send, out = (self._mpi.IN_PLACE, values) if here else (values, None)
        request = self.comm.Ireduce(send, out, op=self._op(op, x.dtype), root=root)
        return Request(request.Test, (lambda: self._store(values, x, op)) if here else _nothing, values)

    def reduce_scatter(self, out: Any, x: Any, op: ReduceOp, counts: list[int] | None = None) -> Request:
        values = _for_maths(x)
        result = np.empty(out.shape, values.dtype)
        mpi_op = self._op(op, x.dtype)
        if counts is None:
            request = self.comm.Ireduce_scatter_block(values, result, op=mpi_op)
        else:
            request = self.comm.Ireduce_scatter(values, result, counts, op=mpi_op)
        return Request(request.Test, lambda: self._store(result, out, op), (values, result))

    def broadcast(self, x: Any, root: int) -> Request:
        values = _on_host(x)
        request = self.comm.Ibcast(self._bytes(values), root=root)
        return Request(request.Test, _copy_back(values, x), values)

    def all_gather(self, out: Any, x: Any, counts: list[int] | None = None) -> Request:
        values, result = _on_host(x), _on_host(out)
        if np.may_share_memory(values, result):  # MPI forbids it
            values = values.copy()
        if counts is None:
            request = self.comm.Iallgather(self._bytes(values), self._bytes(result))
        else:
            request = self.comm.Iallgatherv(self._bytes(values), self._pieces(result, counts, x.itemsize))
        return Request(request.Test, _copy_back(result, out), (values, result))

    def gather(self, out: Any, x: Any, root: int) -> Request:
        values, result = _on_host(x), None if out is None else _on_host(out)
        to = None if out is None else self._bytes(result)
        request = self.comm.Igather(self._bytes(values), to, root=root)
        return Request(request.Test, _copy_back(result, out), (values, result))

    def scatter(self, out: Any, x: Any, root: int) -> Request:
        values, result = None if x is None else _on_host(x), _on_host(out)
        send = None if x is None else self._bytes(values)
        request = self.comm.Iscatter(send, self._bytes(result), root=root)
        return Request(request.Test, _copy_back(result, out), (values, result))

    def all_to_all(self, out: Any, x: Any, out_counts: list[int], counts: list[int]) -> Request:
        values, result = _on_host(x), _on_host(out)
        if np.may_share_memory(values, result):
            values = values.copy()
        # MPI takes fewer elements than it was told to expect without a word, so the ranks tell each other.
        announced, told = np.array(counts, np.int64), np.zeros(self.size, np.int64)
        telling = self.comm.Ialltoall(announced, told)
        request = self.comm.Ialltoallv(
            self._pieces(values, counts, x.itemsize), self._pieces(result, out_counts, x.itemsize)
        )

        def test():
            if not telling.Test():
                return False
            if told.tolist() != out_counts:
                raise DistMismatch(
                    f"all_to_all: rank {self.rank} of the group expects {out_counts} elements of the ranks, "
                    f"and they send it {told.tolist()}"
                )
            return request.Test()

        return Request(test, _copy_back(result, out), (values, result, announced))

    def send(self, x: Any, peer: int, tag: int) -> Request:
        values = _on_host(x)
        request = self.comm.Isend(self._bytes(values), dest=peer, tag=tag)
        return Request(request.Test, keep=values)

    def recv(self, x: Any, peer: int | None, tag: int) -> Request:
        """`pending.keep` is the rank that it came from, once it is over."""
        result = _on_host(x)
        source = self._mpi.ANY_SOURCE if peer is None else peer
        receive = _Receive(self._mpi, self.comm.Irecv(self._bytes(result), source=source, tag=tag), result)
        store = _copy_back(result, x)

        def finish():
            store()
            pending.keep = receive.status.Get_source()

        pending = Request(receive.test, finish, receive, cancel=receive.cancel)
        return pending

    def _op(self, op: ReduceOp, dtype: np.dtype) -> Any:
        return getattr(self._mpi, (_BOOL_OPS if dtype.kind == "b" else _OPS)[op])

    def _bytes(self, x: np.ndarray) -> list:
        return [_as_bytes(x), self._mpi.BYTE]

    def _pieces(self, x: np.ndarray, counts: list[int], itemsize: int) -> list:
        """A flat array of which so many elements go to, or come from, each rank."""
        sizes = [count * itemsize for count in counts]
        return [_as_bytes(x), (sizes, [0, *itertools.accumulate(sizes[:-1])]), self._mpi.BYTE]

    def _store(self, values: np.ndarray, x: Any, op: ReduceOp) -> None:
        if op is ReduceOp.AVG:
            values /= self.size
        _copy_back(values, x)()


class _Receive:
    """A receive that is under way; `status` says of its message, once it is over."""

    def __init__(self, MPI: Any, request: Any, result: np.ndarray):
        self._mpi, self._request, self._result = MPI, request, result
        self._over, self.status = False, MPI.Status()

    def test(self) -> bool:
        """Is it over?

        Raises:
            DistError: the message is longer or shorter than the tensor.
        """
        if self._poll() and (size := self.status.Get_count(self._mpi.BYTE)) != self._result.nbytes:
            raise self._misfit(f"{size} bytes")
        return self._over

    def cancel(self) -> bool:
        """Give it up, if no message has come; was there none?"""
        if not self._over:
            self._request.Cancel()
            wait_until(self._poll, _CANCEL_SECONDS)  # it takes longer if a message is coming
        return self._over and self.status.Is_cancelled()

    def _poll(self) -> bool:
        if not self._over:  # afterwards the request knows nothing any more
            try:
                self._over = self._request.Test(self.status)
            except self._mpi.Exception as error:
                if error.Get_error_class() == self._mpi.ERR_TRUNCATE:
                    raise self._misfit("more") from error
                raise
        return self._over

    def _misfit(self, found: str) -> DistError:
        return DistError(f"a tensor of {self._result.nbytes} bytes can't receive a message of {found}")


def _nothing() -> None:
    pass


def _as_bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


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
