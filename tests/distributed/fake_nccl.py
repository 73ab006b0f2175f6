"""A strict stand-in for `cupy.cuda.nccl`: each rank is a thread, and each GPU one of the strict CuPy's.

It moves the numbers for real, between the addresses that it is given, and refuses what NCCL would hang on or
read wrong memory with: ranks that don't match, a default stream, a GPU that isn't the communicator's.
"""

import ctypes
import queue
import sys
import threading

import ml_dtypes
import numpy as np

from tests.every import every
from tests.strict_cupy import device

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
DTYPES = [*map(np.dtype, DTYPES), np.dtype(ml_dtypes.bfloat16)]
OPS = [np.add.reduce, np.multiply.reduce, np.maximum.reduce, np.minimum.reduce, lambda x: x.sum(0) / len(x)]
PATIENCE = 60  # seconds


class NcclError(RuntimeError):
    pass


def _of_cupy_13():
    """Until version 13, CuPy has the id of a communicator as signed chars; since 14, as bytes."""
    return sys.modules["cupy"].__version__.startswith("13.")


class World:
    """What the ranks of one communicator share."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.slots = [None] * size
        self.mail = {(a, b): queue.Queue() for a in range(size) for b in range(size)}

    def exchange(self, rank, what):
        """What every rank brings; all must come."""
        self.slots[rank] = what
        self.barrier.wait()
        seen = list(self.slots)
        self.barrier.wait()
        return seen


class Nccl:
    """The module."""

    available = True
    NcclError = NcclError

    def __init__(self):
        self.worlds, self.lock, self.state = {}, threading.Lock(), threading.local()
        self.calls = []
        outer = self

        class Communicator(NcclCommunicator):
            nccl = outer

        self.NcclCommunicator = Communicator

    def get_unique_id(self):
        chars = [(i * 37 + len(self.worlds)) % 256 - 128 for i in range(128)]
        return tuple(chars) if _of_cupy_13() else np.array(chars, np.int8).tobytes()

    def groupStart(self):
        assert getattr(self.state, "group", None) is None
        self.state.group = []

    def groupEnd(self):
        group, self.state.group = self.state.group, None
        for kind in ("send", "recv"):
            for name, run in group:
                if name == kind:
                    run()


class NcclCommunicator:
    nccl = None

    def __init__(self, ndev, commId, rank):
        assert type(commId) is (tuple if _of_cupy_13() else bytes) and len(commId) == 128
        assert type(commId) is bytes or every(-128 <= i < 128 for i in commId)
        with self.nccl.lock:
            self.world = self.nccl.worlds.setdefault(commId, World(ndev))
        assert self.world.size == ndev and 0 <= rank < ndev
        self.rank, self.device = rank, device.get_device()
        devices = self.world.exchange(rank, self.device)
        assert len(set(devices)) == ndev, f"two ranks on one GPU: {devices}"

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        x = self._at(sendbuf, count, datatype, stream, op)
        self._at(recvbuf, count, datatype, stream, op)[...] = self._reduced(
            x, ("allReduce", count, datatype, op)
        )

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        x = self._at(sendbuf, count, datatype, stream, op)
        total = self._reduced(x, ("reduce", count, datatype, op, root))
        if self.rank == root:
            self._at(recvbuf, count, datatype, stream, op)[...] = total

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        x = self._at(sendbuf, recvcount * self.world.size, datatype, stream, op)
        total = self._reduced(x, ("reduceScatter", recvcount, datatype, op))
        mine = total.reshape(self.world.size, -1)[self.rank]
        self._at(recvbuf, recvcount, datatype, stream, op)[...] = mine

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        x = self._at(sendbuff, count, datatype, stream)
        values = self._gathered(x, ("broadcast", count, datatype, root))
        self._at(recvbuff, count, datatype, stream)[...] = values[root]

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        x = self._at(sendbuf, count, datatype, stream)
        values = self._gathered(x, ("allGather", count, datatype))
        self._at(recvbuf, count * self.world.size, datatype, stream)[...] = values.reshape(-1)

    def send(self, sendbuf, count, datatype, peer, stream):
        x = self._at(sendbuf, count, datatype, stream)
        self._now_or_later("send", peer, lambda: self.world.mail[self.rank, peer].put(x.copy()))

    def recv(self, recvbuf, count, datatype, peer, stream):
        out = self._at(recvbuf, count, datatype, stream)

        def run():
            x = self.world.mail[peer, self.rank].get(timeout=PATIENCE)
            assert (x.dtype, x.size) == (out.dtype, out.size), "send and recv don't match"
            out[...] = x

        self._now_or_later("recv", peer, run)

    def abort(self):
        self.world.barrier.abort()

    def _now_or_later(self, name, peer, run):
        group = getattr(self.nccl.state, "group", None)
        if group is not None:
            group.append((name, run))
        else:
            assert peer != self.rank, "a send to oneself outside of a group hangs"
            run()

    def _at(self, address, count, datatype, stream, op=None):
        assert type(stream) is int and stream != 0, "not in a stream of its own"
        assert device.get_device() == self.device, "the current GPU is another one"
        assert op is None or (type(op) is int and 0 <= op < len(OPS))
        dtype = DTYPES[datatype]
        if count == 0:
            return np.empty(0, dtype)
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        return np.frombuffer(memory, dtype)

    def _gathered(self, x, what):
        self.nccl.calls.append((self.rank, *what))
        seen = self.world.exchange(self.rank, (what, x.copy()))
        assert every(other == what for other, _ in seen), f"the ranks don't match: {seen}"
        return np.stack([values for _, values in seen])

    def _reduced(self, x, what):
        return OPS[what[3]](self._gathered(x, what)).astype(x.dtype)
