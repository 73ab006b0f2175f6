"""The engine on NCCL: arrays on GPUs, one GPU a rank.

Every operation runs in a stream of its own, behind the work that made its input. Nothing waits on the CPU:
`Request.queue` makes the current stream wait for the operation, so later work finds the result.

NCCL adds halves in their own dtype from hop to hop.

Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...backends.device import cupy
from ...cuda.devices import on_gpu
from ...cuda.streams import Event, Stream, current_stream
from ..errors import DistError
from ..reduce_op import ReduceOp
from .request import Request

# ncclDataType_t and ncclRedOp_t; CuPy has no names for the newest of them.
_DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_OPS = {ReduceOp.SUM: 0, ReduceOp.PRODUCT: 1, ReduceOp.MAX: 2, ReduceOp.MIN: 3, ReduceOp.AVG: 4}
_BOOL_OPS = _OPS | {ReduceOp.SUM: 2, ReduceOp.PRODUCT: 3}  # "any" and "all" of zeros and ones
_BYTE = 1
_ID_BYTES = 128


class NcclEngine:
    """Collectives among GPUs.

    Args:
        rank, size: in the group.
        share: gives all ranks the bytes that rank 0 passes; the others pass None.

    Raises:
        DistError: CuPy has no NCCL, or two GPUs were used by one rank.
    """

    def __init__(self, rank: int, size: int, share: Callable[[bytes | None], bytes]):
        self.rank, self.size, self._share = rank, size, share
        self._nccl = _nccl()
        self._comm: Any = None
        self._stream: Stream | None = None
        self._batch: list[Event] | None = None

    def all_reduce(self, x: Any, op: ReduceOp) -> Request:
        count, dtype, nccl_op = _reduction(x, op)
        return self._start(x, lambda c, s: c.allReduce(x.data.ptr, x.data.ptr, count, dtype, nccl_op, s), x)

    def reduce(self, x: Any, root: int, op: ReduceOp) -> Request:
        count, dtype, nccl_op = _reduction(x, op)
        return self._start(
            x, lambda c, s: c.reduce(x.data.ptr, x.data.ptr, count, dtype, nccl_op, root, s), x
        )

    def reduce_scatter(self, out: Any, x: Any, op: ReduceOp, counts: list[int] | None = None) -> Request:
        count, dtype, nccl_op = _reduction(out, op)
        numbers = 2 if x.dtype.kind == "c" else 1  # of an element

        def one_by_one(comm, stream):
            source = x.data.ptr
            for root, size in enumerate(counts):
                comm.reduce(source, out.data.ptr, size * numbers, dtype, nccl_op, root, stream)
                source += size * x.itemsize

        def at_once(comm, stream):
            comm.reduceScatter(x.data.ptr, out.data.ptr, count, dtype, nccl_op, stream)

        return self._start(x, at_once if counts is None else self._grouped(one_by_one), (x, out))

    def broadcast(self, x: Any, root: int) -> Request:
        return self._start(x, lambda c, s: c.broadcast(x.data.ptr, x.data.ptr, x.nbytes, _BYTE, root, s), x)

    def all_gather(self, out: Any, x: Any, counts: list[int] | None = None) -> Request:
        def one_by_one(comm, stream):
            target = out.data.ptr
            for root, size in enumerate(counts):
                source = x.data.ptr if root == self.rank else target
                comm.broadcast(source, target, size * x.itemsize, _BYTE, root, stream)
                target += size * x.itemsize

        def at_once(comm, stream):
            comm.allGather(x.data.ptr, out.data.ptr, x.nbytes, _BYTE, stream)

        return self._start(x, at_once if counts is None else self._grouped(one_by_one), (x, out))

    def gather(self, out: Any, x: Any, root: int) -> Request:
        def issue(comm, stream):
            comm.send(x.data.ptr, x.nbytes, _BYTE, root, stream)
            for peer in range(self.size) if out is not None else ():
                comm.recv(out.data.ptr + peer * x.nbytes, x.nbytes, _BYTE, peer, stream)

        return self._start(x, self._grouped(issue), (x, out))

    def scatter(self, out: Any, x: Any, root: int) -> Request:
        def issue(comm, stream):
            for peer in range(self.size) if x is not None else ():
                comm.send(x.data.ptr + peer * out.nbytes, out.nbytes, _BYTE, peer, stream)
            comm.recv(out.data.ptr, out.nbytes, _BYTE, root, stream)

        return self._start(out, self._grouped(issue), (x, out))

    def all_to_all(self, out: Any, x: Any, out_counts: list[int], counts: list[int]) -> Request:
        size = x.dtype.itemsize

        def issue(comm, stream):
            source, target = x.data.ptr, out.data.ptr
            for peer in range(self.size):
                comm.send(source, counts[peer] * size, _BYTE, peer, stream)
                comm.recv(target, out_counts[peer] * size, _BYTE, peer, stream)
                source, target = source + counts[peer] * size, target + out_counts[peer] * size

        return self._start(x, self._grouped(issue), (x, out))

    def send(self, x: Any, peer: int, tag: int) -> Request:
        return self._start(x, lambda c, s: c.send(x.data.ptr, x.nbytes, _BYTE, peer, s), x)

    def recv(self, x: Any, peer: int | None, tag: int) -> Request:
        if peer is None:
            raise ValueError("recv(): NCCL can't receive from any rank: src must be given")
        return self._start(x, lambda c, s: c.recv(x.data.ptr, x.nbytes, _BYTE, peer, s), peer)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context in which sends and receives begin at once, at its end."""
        if self._comm is None:
            raise DistError("batch_isend_irecv(): begin with a collective, in which all ranks connect")
        self._batch = []
        try:
            with self._group():
                yield
            for event in self._batch:
                event.record(self._stream)
        finally:
            self._batch = None

    def connect(self, x: Any) -> None:
        """Connect to the other ranks, from the GPU that `x` is on.

        Raises:
            DistError: this rank has used another GPU before.
        """
        index = x.device.id
        if self._comm is None:
            share = self._share(_as_bytes(self._nccl.get_unique_id()) if self.rank == 0 else None)
            with on_gpu(index):
                self._comm = self._nccl.NcclCommunicator(self.size, _as_id(share), self.rank)
                self._stream = Stream(index)
        if self._stream.device_index != index:
            raise DistError(
                f"rank {self.rank} of the group is on cuda:{self._stream.device_index}, got an array on "
                f"cuda:{index}: mytorch.cuda.set_device(local_rank) gives each rank its GPU"
            )

    def abort(self) -> None:
        """Give up what is under way, so that the GPU's streams go on."""
        if self._comm is not None:
            self._comm.abort()

    def _start(self, x: Any, issue: Callable[[Any, int], None], keep: Any) -> Request:
        self.connect(x)
        event, index = Event(), x.device.id
        with on_gpu(index):
            self._stream.wait_stream(current_stream(index))
            issue(self._comm, self._stream.cuda_stream)
            if self._batch is None:
                event.record(self._stream)
            else:  # it begins when the batch does
                self._batch.append(event)
        return Request(
            lambda: event._raw is not None and event.query(),
            keep=keep,
            queue=lambda: current_stream(index).wait_event(event),
        )

    def _grouped(self, issue: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """Sends and receives that wait for each other must begin as one."""

        def together(comm, stream):
            with self._group():
                issue(comm, stream)

        return together

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
    """The id as CuPy 14 has it; CuPy 13 gives 128 signed chars."""
    return unique_id if isinstance(unique_id, bytes) else np.array(unique_id, np.int8).tobytes()


def _as_id(data: bytes) -> bytes | tuple[int, ...]:
    """The id as this CuPy wants it."""
    if len(data) != _ID_BYTES:
        raise DistError(f"the id of a NCCL communicator has {_ID_BYTES} bytes, got {len(data)}")
    if int(cupy().__version__.split(".")[0]) >= 14:
        return data
    return tuple(np.frombuffer(data, np.int8).tolist())


def _reduction(x: Any, op: ReduceOp) -> tuple[int, int, int]:
    """The number of elements, their NCCL dtype and the NCCL operation.

    Raises:
        ValueError: NCCL can't reduce so.
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
