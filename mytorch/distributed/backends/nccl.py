"""The NCCL backend: for arrays on GPUs, with one GPU per rank.

Operations run on a separate stream, after the work that produced their input. Nothing blocks the CPU:
`Request.queue` makes the current stream wait for the operation, so later work sees the result.

NCCL accumulates half precision in half precision at every step.

Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from ...backends.device import RawArray
from ...backends.kinds import cupy
from ...cuda.devices import on_gpu
from ...cuda.streams import Event, Stream, current_stream
from ..errors import DistError
from ..reduce_op import ReduceOp
from . import Request

Communicator: TypeAlias = Any  # cupy.cuda.nccl.NcclCommunicator
Issue: TypeAlias = Callable[[Communicator, int], None]  # issues operations on a stream

# ncclDataType_t and ncclRedOp_t; CuPy doesn't name the newest of them.
_DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}
_OPS = {ReduceOp.SUM: 0, ReduceOp.PRODUCT: 1, ReduceOp.MAX: 2, ReduceOp.MIN: 3, ReduceOp.AVG: 4}
_BOOL_OPS = _OPS | {ReduceOp.SUM: 2, ReduceOp.PRODUCT: 3}  # "any" and "all" of zeros and ones
_BYTE = 1
_ID_BYTES = 128


class NCCLBackend:
    """Collectives among GPUs.

    Args:
        rank, size: of the group.
        broadcast: returns the bytes that rank 0 passes on all ranks; the others pass None.

    Raises:
        DistError: CuPy was built without NCCL, or a rank used two GPUs.
    """

    def __init__(self, rank: int, size: int, broadcast: Callable[[bytes | None], bytes]):
        self.rank, self.size, self._broadcast_id = rank, size, broadcast
        self._nccl = _nccl()
        self._comm: Communicator | None = None  # made by the first operation
        self._stream: Stream | None = None
        self._batch: list[Event] | None = None

    def all_reduce(self, x: RawArray, op: ReduceOp) -> Request:
        count, dtype, nccl_op = _reduction(x, op)
        return self._start(x, lambda c, s: c.allReduce(x.data.ptr, x.data.ptr, count, dtype, nccl_op, s), x)

    def reduce(self, x: RawArray, root: int, op: ReduceOp) -> Request:
        count, dtype, nccl_op = _reduction(x, op)
        return self._start(
            x, lambda c, s: c.reduce(x.data.ptr, x.data.ptr, count, dtype, nccl_op, root, s), x
        )

    def reduce_scatter(
        self, out: RawArray, x: RawArray, op: ReduceOp, counts: Sequence[int] | None = None
    ) -> Request:
        count, dtype, nccl_op = _reduction(out, op)
        scalars = 2 if x.dtype.kind == "c" else 1  # per element

        def one_by_one(comm: Communicator, stream: int) -> None:
            source = x.data.ptr
            for root, size in enumerate(counts):
                comm.reduce(source, out.data.ptr, size * scalars, dtype, nccl_op, root, stream)
                source += size * x.itemsize

        def at_once(comm: Communicator, stream: int) -> None:
            comm.reduceScatter(x.data.ptr, out.data.ptr, count, dtype, nccl_op, stream)

        return self._start(x, at_once if counts is None else self._grouped(one_by_one), (x, out))

    def broadcast(self, x: RawArray, root: int) -> Request:
        return self._start(x, lambda c, s: c.broadcast(x.data.ptr, x.data.ptr, x.nbytes, _BYTE, root, s), x)

    def all_gather(self, out: RawArray, x: RawArray, counts: Sequence[int] | None = None) -> Request:
        def one_by_one(comm: Communicator, stream: int) -> None:
            target = out.data.ptr
            for root, size in enumerate(counts):
                source = x.data.ptr if root == self.rank else target
                comm.broadcast(source, target, size * x.itemsize, _BYTE, root, stream)
                target += size * x.itemsize

        def at_once(comm: Communicator, stream: int) -> None:
            comm.allGather(x.data.ptr, out.data.ptr, x.nbytes, _BYTE, stream)

        return self._start(x, at_once if counts is None else self._grouped(one_by_one), (x, out))

    def gather(self, out: RawArray, x: RawArray, root: int) -> Request:
        def issue(comm: Communicator, stream: int) -> None:
            comm.send(x.data.ptr, x.nbytes, _BYTE, root, stream)
            for peer in range(self.size) if out is not None else ():
                comm.recv(out.data.ptr + peer * x.nbytes, x.nbytes, _BYTE, peer, stream)

        return self._start(x, self._grouped(issue), (x, out))

    def scatter(self, out: RawArray, x: RawArray, root: int) -> Request:
        def issue(comm: Communicator, stream: int) -> None:
            for peer in range(self.size) if x is not None else ():
                comm.send(x.data.ptr + peer * out.nbytes, out.nbytes, _BYTE, peer, stream)
            comm.recv(out.data.ptr, out.nbytes, _BYTE, root, stream)

        return self._start(out, self._grouped(issue), (x, out))

    def all_to_all(
        self, out: RawArray, x: RawArray, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Request:
        size = x.dtype.itemsize

        def issue(comm: Communicator, stream: int) -> None:
            source, target = x.data.ptr, out.data.ptr
            for peer in range(self.size):
                comm.send(source, counts[peer] * size, _BYTE, peer, stream)
                comm.recv(target, out_counts[peer] * size, _BYTE, peer, stream)
                source, target = source + counts[peer] * size, target + out_counts[peer] * size

        return self._start(x, self._grouped(issue), (x, out))

    def send(self, x: RawArray, peer: int, tag: int) -> Request:
        return self._start(x, lambda c, s: c.send(x.data.ptr, x.nbytes, _BYTE, peer, s), x)

    def recv(self, x: RawArray, peer: int | None, tag: int) -> Request:
        if peer is None:
            raise ValueError("recv(): NCCL can't receive from any rank: src must be given")
        return self._start(x, lambda c, s: c.recv(x.data.ptr, x.nbytes, _BYTE, peer, s), peer)

    @contextmanager
    def coalesce(self) -> Iterator[None]:
        """Context manager that starts the sends and receives inside it together, at its end."""
        if self._comm is None:
            raise DistError("batch_isend_irecv(): call a collective first, in which all ranks connect")
        self._batch = []
        try:
            with self._group():
                yield
            for event in self._batch:
                event.record(self._stream)
        finally:
            self._batch = None

    def connect(self, x: RawArray) -> None:
        """Connects to the other ranks from the GPU of `x`, unless it is connected already.

        Raises:
            DistError: this rank has used another GPU before.
        """
        index = x.device.id
        if self._comm is None:
            unique_id = self._broadcast_id(_as_bytes(self._nccl.get_unique_id()) if self.rank == 0 else None)
            with on_gpu(index):
                self._comm = self._nccl.NcclCommunicator(self.size, _as_id(unique_id), self.rank)
                self._stream = Stream(index)
        if self._stream.device_index != index:
            raise DistError(
                f"rank {self.rank} of the group is on cuda:{self._stream.device_index}, got an array on "
                f"cuda:{index}: call mytorch.cuda.set_device(local_rank) to choose one GPU per rank"
            )

    def abort(self) -> None:
        """Aborts the operations in flight, so that the GPU's streams are no longer blocked."""
        if self._comm is not None:
            self._comm.abort()

    def _start(self, x: RawArray, issue: Issue, keep: object) -> Request:
        self.connect(x)
        event, index = Event(), x.device.id
        with on_gpu(index):
            self._stream.wait_stream(current_stream(index))
            issue(self._comm, self._stream.cuda_stream)
            if self._batch is None:
                event.record(self._stream)
            else:  # recorded when the batch starts
                self._batch.append(event)
        return Request(
            lambda: event._raw is not None and event.query(),
            keep=keep,
            queue=lambda: current_stream(index).wait_event(event),
        )

    def _grouped(self, issue: Issue) -> Issue:
        """Returns `issue` inside ncclGroupStart and ncclGroupEnd: operations that wait for each other."""

        def issue_group(comm: Communicator, stream: int) -> None:
            with self._group():
                issue(comm, stream)

        return issue_group

    @contextmanager
    def _group(self) -> Iterator[None]:
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()


def _nccl() -> Any:
    cupy()
    from cupy.cuda import nccl

    if not getattr(nccl, "available", False):
        raise DistError(
            "backend nccl needs CuPy with NCCL: pip install nvidia-nccl-cu12, or nvidia-nccl-cu13"
        )
    return nccl


def _as_bytes(unique_id: bytes | tuple[int, ...]) -> bytes:
    """Returns the id as bytes, as CuPy 14 returns it; CuPy 13 returns 128 signed chars."""
    return unique_id if isinstance(unique_id, bytes) else np.array(unique_id, np.int8).tobytes()


def _as_id(data: bytes) -> bytes | tuple[int, ...]:
    """Returns the id in the form that this version of CuPy expects."""
    if len(data) != _ID_BYTES:
        raise DistError(f"the id of a NCCL communicator has {_ID_BYTES} bytes, got {len(data)}")
    if int(cupy().__version__.split(".")[0]) >= 14:
        return data
    return tuple(np.frombuffer(data, np.int8).tolist())


def _reduction(x: RawArray, op: ReduceOp) -> tuple[int, int, int]:
    """Returns the number of elements, their NCCL dtype and the NCCL operation.

    Raises:
        ValueError: NCCL doesn't have this reduction of this dtype.
    """
    name, count = x.dtype.name, x.size
    if name == "bool":
        return count, _BYTE, _nccl_op(_BOOL_OPS, op, name)
    if x.dtype.kind == "c" and op in (ReduceOp.SUM, ReduceOp.AVG):  # pairs of floats
        name, count = f"float{x.dtype.itemsize * 4}", 2 * count
    if name not in _DTYPES:
        raise ValueError(f"NCCL can't reduce {x.dtype} with ReduceOp.{op.name}")
    return count, _DTYPES[name], _nccl_op(_OPS, op, name)


def _nccl_op(ops: dict[ReduceOp, int], op: ReduceOp, dtype: str) -> int:
    if op not in ops:
        raise ValueError(f"NCCL has no ReduceOp.{op.name} (of {dtype})")
    return ops[op]
