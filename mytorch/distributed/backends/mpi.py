"""The MPI backend: for arrays on the CPU, and for those on GPUs through copies on the CPU.

All operations are non-blocking, so that deadlines can be checked. Data that is only moved is sent as bytes,
whatever its dtype. Half precision, which MPI doesn't have, is summed in float32.

Source: MPI 4.1, chapter 6 (collectives), https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import CPU, RawArray, device_of, is_on_host, move
from ..environment import mpi
from ..errors import DistError, DistMismatch
from ..polling import wait_until
from ..reduce_op import ReduceOp, reduction_dtype
from . import Request

if TYPE_CHECKING:
    from mpi4py import MPI

_OPS = {
    ReduceOp.SUM: "SUM", ReduceOp.AVG: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX", ReduceOp.BAND: "BAND", ReduceOp.BOR: "BOR", ReduceOp.BXOR: "BXOR",
}
# A bool is a byte of 0 or 1: its sum is "any", its product "all".
_BOOL_OPS = _OPS | {ReduceOp.SUM: "MAX", ReduceOp.PRODUCT: "MIN"}
_CANCEL_SECONDS = 1.0


class MPIBackend:
    """Collectives over an MPI communicator."""

    def __init__(self, comm: MPI.Comm):
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self._mpi = mpi()

    def all_reduce(self, x: RawArray, op: ReduceOp) -> Request:
        values = _for_reduction(x)
        request = self.comm.Iallreduce(self._mpi.IN_PLACE, values, op=self._op(op, x.dtype))
        return Request(request.Test, lambda: self._store(values, x, op), values)

    def reduce(self, x: RawArray, root: int, op: ReduceOp) -> Request:
        values, is_root = _for_reduction(x), self.rank == root
        send, out = (self._mpi.IN_PLACE, values) if is_root else (values, None)
        request = self.comm.Ireduce(send, out, op=self._op(op, x.dtype), root=root)
        return Request(request.Test, (lambda: self._store(values, x, op)) if is_root else _nothing, values)

    def reduce_scatter(
        self, out: RawArray, x: RawArray, op: ReduceOp, counts: Sequence[int] | None = None
    ) -> Request:
        values = _for_reduction(x)
        result = np.empty(out.shape, values.dtype)
        mpi_op = self._op(op, x.dtype)
        if counts is None:
            request = self.comm.Ireduce_scatter_block(values, result, op=mpi_op)
        else:
            request = self.comm.Ireduce_scatter(values, result, counts, op=mpi_op)
        return Request(request.Test, lambda: self._store(result, out, op), (values, result))

    def broadcast(self, x: RawArray, root: int) -> Request:
        values = _on_cpu(x)
        request = self.comm.Ibcast(self._bytes(values), root=root)
        return Request(request.Test, _copy_back(values, x), values)

    def all_gather(self, out: RawArray, x: RawArray, counts: Sequence[int] | None = None) -> Request:
        values, result = _on_cpu(x), _on_cpu(out)
        if np.may_share_memory(values, result):  # MPI forbids overlapping buffers
            values = values.copy()
        if counts is None:
            request = self.comm.Iallgather(self._bytes(values), self._bytes(result))
        else:
            request = self.comm.Iallgatherv(self._bytes(values), self._vector(result, counts, x.itemsize))
        return Request(request.Test, _copy_back(result, out), (values, result))

    def gather(self, out: RawArray, x: RawArray, root: int) -> Request:
        values, result = _on_cpu(x), None if out is None else _on_cpu(out)
        recv_buffer = None if out is None else self._bytes(result)
        request = self.comm.Igather(self._bytes(values), recv_buffer, root=root)
        return Request(request.Test, _copy_back(result, out), (values, result))

    def scatter(self, out: RawArray, x: RawArray, root: int) -> Request:
        values, result = None if x is None else _on_cpu(x), _on_cpu(out)
        send_buffer = None if x is None else self._bytes(values)
        request = self.comm.Iscatter(send_buffer, self._bytes(result), root=root)
        return Request(request.Test, _copy_back(result, out), (values, result))

    def all_to_all(
        self, out: RawArray, x: RawArray, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Request:
        values, result = _on_cpu(x), _on_cpu(out)
        if np.may_share_memory(values, result):
            values = values.copy()
        # MPI silently accepts fewer elements than expected, so the ranks exchange their counts first.
        sent_counts, incoming = np.array(counts, np.int64), np.zeros(self.size, np.int64)
        exchange = self.comm.Ialltoall(sent_counts, incoming)
        request = self.comm.Ialltoallv(
            self._vector(values, counts, x.itemsize), self._vector(result, out_counts, x.itemsize)
        )

        def test() -> bool:
            if not exchange.Test():
                return False
            if incoming.tolist() != list(out_counts):
                raise DistMismatch(
                    f"all_to_all: rank {self.rank} of the group expects {list(out_counts)} elements from the "
                    f"ranks, but they send {incoming.tolist()}"
                )
            return request.Test()

        return Request(test, _copy_back(result, out), (values, result, sent_counts))

    def send(self, x: RawArray, peer: int, tag: int) -> Request:
        values = _on_cpu(x)
        request = self.comm.Isend(self._bytes(values), dest=peer, tag=tag)
        return Request(request.Test, keep=values)

    def recv(self, x: RawArray, peer: int | None, tag: int) -> Request:
        """Receives into `x`; `keep` of the request is the rank of the sender once it is complete."""
        result = _on_cpu(x)
        source = self._mpi.ANY_SOURCE if peer is None else peer
        receive = _Receive(self._mpi, self.comm.Irecv(self._bytes(result), source=source, tag=tag), result)
        store = _copy_back(result, x)

        def finish() -> None:
            store()
            request.keep = receive.status.Get_source()

        request = Request(receive.test, finish, receive, cancel=receive.cancel)
        return request

    def _op(self, op: ReduceOp, dtype: np.dtype) -> MPI.Op:
        return getattr(self._mpi, (_BOOL_OPS if dtype.kind == "b" else _OPS)[op])

    def _bytes(self, x: np.ndarray) -> list:
        return [_as_bytes(x), self._mpi.BYTE]

    def _vector(self, x: np.ndarray, counts: Sequence[int], itemsize: int) -> list:
        """Returns the buffer of a flat array with `counts[r]` elements for, or from, rank r."""
        sizes = [count * itemsize for count in counts]
        return [_as_bytes(x), (sizes, [0, *itertools.accumulate(sizes[:-1])]), self._mpi.BYTE]

    def _store(self, values: np.ndarray, x: RawArray, op: ReduceOp) -> None:
        if op is ReduceOp.AVG:
            values /= self.size
        _copy_back(values, x)()


class _Receive:
    """A receive in flight; once it is complete, `status` describes its message."""

    def __init__(self, mpi: Any, request: MPI.Request, result: np.ndarray):
        self._mpi, self._request, self._result = mpi, request, result
        self._completed, self.status = False, mpi.Status()

    def test(self) -> bool:
        """Returns whether it is complete.

        Raises:
            DistError: the message is longer or shorter than the tensor.
        """
        if self._poll() and (size := self.status.Get_count(self._mpi.BYTE)) != self._result.nbytes:
            raise self._size_error(f"{size} bytes")
        return self._completed

    def cancel(self) -> bool:
        """Cancels it unless a message has started to arrive; returns whether it was cancelled."""
        if not self._completed:
            self._request.Cancel()
            wait_until(self._poll, _CANCEL_SECONDS)  # takes longer if a message is arriving
        return self._completed and self.status.Is_cancelled()

    def _poll(self) -> bool:
        if not self._completed:  # afterwards the request is null, and Test would reset the status
            try:
                self._completed = self._request.Test(self.status)
            except self._mpi.Exception as error:
                if error.Get_error_class() == self._mpi.ERR_TRUNCATE:
                    raise self._size_error("more") from error
                raise
        return self._completed

    def _size_error(self, found: str) -> DistError:
        return DistError(f"a tensor of {self._result.nbytes} bytes can't receive a message of {found}")


def _nothing() -> None:
    pass


def _as_bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def _on_cpu(x: RawArray) -> np.ndarray:
    """Returns `x` itself if it is on the CPU, else a copy on the CPU."""
    return move(x, CPU)


def _for_reduction(x: RawArray) -> np.ndarray:
    """Returns the values of `x` on the CPU in a dtype that MPI can reduce; `x` itself where possible."""
    values = _on_cpu(x)
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    return values.astype(reduction_dtype(values.dtype), copy=False)


def _copy_back(values: np.ndarray | None, x: RawArray) -> Callable[[], None]:
    """Returns a function that copies `values` to `x`, unless they share memory."""
    if values is None or values is x:
        return _nothing

    def store() -> None:
        if is_on_host(x):
            if not np.shares_memory(values, x):
                x[...] = values
        else:
            x[...] = move(values.astype(x.dtype, copy=False), device_of(x))

    return store
