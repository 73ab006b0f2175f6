"""Batches in memory that a worker and its parent share.

A worker has one file without a name: a memfd on Linux, which lives in memory and isn't limited by /dev/shm,
else an unlinked temporary file. Its blocks lie far apart in the file, which is sparse, and grow where they
are. The worker writes a batch into a free block and sends its position; the parent's arrays lie in that very
memory, and the block is free again once the last of them is gone.

Only what is around the arrays (dicts, tuples, strings, dtypes, shapes) is pickled, with the arrays' bytes out
of band (PEP 574). The pickle comes from the parent's own child over anonymous memory, never from outside.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .collate import allocating

_SPAN = 1 << 36  # bytes from the beginning of one block to that of the next
_ALIGNMENT = 64  # of arrays in a block: a cache line
_EXTENT = struct.Struct("<qq")  # offset and size of one array
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # else a block keeps a descriptor


def shared_file() -> int:
    """Returns the descriptor of a new file without a name, with one page for the worker's status."""
    try:
        fd = os.memfd_create("mytorch-batch")
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd


def map_status(fd: int) -> memoryview:
    """Returns the first page of a shared file as int64 numbers: what the worker is doing."""
    return memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("q")


class Block:
    """Shared memory for one batch at a time.

    Args:
        number: 1, 2, …: its position in the file.

    Attributes:
        unpin: called before the memory is unmapped, if it is registered with a GPU.
    """

    def __init__(self, fd: int, number: int, size: int):
        self.number, self.size = number, size
        self.memory = mmap.mmap(fd, size, offset=number * _SPAN, **_MAP_OPTIONS)
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.unpin: Callable[[], None] | None = None

    def __del__(self):
        if getattr(self, "unpin", None) is not None:
            self.unpin()


class Lease:
    """The use of a block: arrays on it hold this object, and `on_end(number)` is called after the last."""

    def __init__(self, block: Block, on_end: Callable[[int], object]):
        self._block, self._on_end = block, on_end
        self.__array_interface__ = {
            "version": 3, "shape": (block.size,), "typestr": "|u1", "data": (block.address, False)
        }  # fmt: skip

    def __del__(self):
        self._on_end(self._block.number)


def lease(block: Block, on_end: Callable[[int], object]) -> np.ndarray:
    """Returns the bytes of a block, (size,) uint8; views, and views of views, refer to the `Lease`."""
    return np.asarray(Lease(block, on_end))


class Ring:
    """The blocks of a worker, on the worker's side."""

    def __init__(self, fd: int) -> None:
        self._fd, self._blocks = fd, dict[int, Block]()
        self._sent: set[int] = set()
        self._kept: set[int] = set()  # while a dataset keeps an array that was collated in a block
        self._block: Block | None = None  # the current one, for the next batch
        self._bytes: np.ndarray | None = None
        self._needed = self._used = 0

    def release(self, numbers: Iterable[int]) -> None:
        """Marks blocks as free that the parent doesn't use any more."""
        self._sent.difference_update(numbers)

    @contextmanager
    def collating(self) -> Iterator[None]:
        """Inside, `default_collate` stacks into a block, as far as there is space."""
        self._take(self._needed)
        with allocating(self._empty):
            yield

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size, start = math.prod(shape) * dtype.itemsize, _aligned(self._used)
        if not size or self._bytes is None or start + size > len(self._bytes):
            return np.empty(shape, dtype)
        self._used = start + size
        return self._bytes[start : self._used].view(dtype).reshape(shape)

    def _take(self, size: int, grow: bool = False) -> None:
        """Makes a free block of at least `size` bytes the current one; with `grow`, a new or enlarged one."""
        self._block = self._bytes = None
        self._used = 0
        free = [n for n in self._blocks if n not in self._sent and n not in self._kept]
        number = next((n for n in free if self._blocks[n].size >= size), None)
        if number is None:
            if not grow:
                return
            number = free[0] if free else len(self._blocks) + 1
            size += size // 2  # the next batch may be larger; pages take memory only once they are used
            size += -size % mmap.PAGESIZE
            if os.fstat(self._fd).st_size < number * _SPAN + size:
                os.ftruncate(self._fd, number * _SPAN + size)
            self._blocks[number] = Block(self._fd, number, size)
        self._kept.add(number)
        self._block = self._blocks[number]
        self._bytes = lease(self._block, self._kept.discard)

    def write(self, value: object) -> tuple[int, int, int, int]:
        """Writes `value` into a block; returns the block's number and size, the offset and size to `read`."""
        stream, buffers = io.BytesIO(), []
        _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
        arrays = [np.asarray(buffer.raw()) for buffer in buffers]
        description = stream.getbuffer()
        tail = 8 + _EXTENT.size * len(arrays) + len(description)
        starts, end = self._place(arrays)
        if self._bytes is None or end + tail > len(self._bytes):
            self._bytes = None  # arrays that were stacked in it keep it until they are copied
            self._take(sum(_aligned(a.nbytes) for a in arrays) + tail, grow=True)
            starts, end = self._place(arrays)
        for array, start in zip(arrays, starts, strict=True):
            if array.nbytes and array.ctypes.data != self._block.address + start:
                self._bytes[start : start + array.nbytes] = array
        extents = b"".join(_EXTENT.pack(start, a.nbytes) for start, a in zip(starts, arrays, strict=True))
        head = struct.pack("<q", len(arrays)) + extents
        self._bytes[end : end + tail] = np.frombuffer(head + description, np.uint8)
        self._needed = end + tail
        self._sent.add(self._block.number)
        self._bytes = None
        return self._block.number, self._block.size, end, tail

    def _place(self, arrays: list[np.ndarray]) -> tuple[list[int], int]:
        """Returns the offset of each array in the current block, and the end of the last one."""
        starts, end, block = [], self._used, self._block
        for array in arrays:
            start = array.ctypes.data - block.address if block is not None and array.nbytes else -1
            if block is None or not 0 <= start <= block.size - array.nbytes:
                start = _aligned(end)
                end = start + array.nbytes
            starts.append(start)
        return starts, end


class Mirror:
    """The blocks of a worker, on the parent's side.

    Args:
        fd: of the worker's file.
        copy: copies some bytes into memory that belongs to the user.
        pin: called with each new block, so that a GPU can read it; may be None. Batches in a block whose
            `unpin` it leaves None are copied.
    """

    def __init__(
        self, fd: int, copy: Callable[[np.ndarray], np.ndarray], pin: Callable[[Block], None] | None = None
    ):
        self.blocks: dict[int, Block] = {}
        self.freed: deque[int] = deque()  # appended to by whichever thread drops the last array
        self.lent = 0
        self._fd, self._copy, self._pin = fd, copy, pin

    def take_freed(self) -> list[int]:
        """Returns the blocks that became free since the last call."""
        freed = [self.freed.popleft() for _ in range(len(self.freed))]
        self.lent -= len(freed)
        return freed

    def discard(self, number: int) -> None:
        """Frees a block without reading it."""
        self.lent += 1
        self.freed.append(number)

    def read(self, number: int, block_size: int, start: int, size: int, copy: bool) -> Any:
        """Returns what `Ring.write` wrote; with `copy`, in memory of its own, and frees the block."""
        block = self.blocks.get(number)
        if block is None or block.size != block_size:
            block = self.blocks[number] = Block(self._fd, number, block_size)
            if self._pin is not None:
                self._pin(block)
        self.lent += 1
        data = lease(block, self.freed.append)
        copy = copy or (self._pin is not None and block.unpin is None)
        description = memoryview(data)[start : start + size]
        (count,) = struct.unpack_from("<q", description)
        buffers = []
        for i in range(count):
            begin, length = _EXTENT.unpack_from(description, 8 + i * _EXTENT.size)
            part = data[begin : begin + length]
            buffers.append(self._copy(part) if copy else part)
        return pickle.loads(description[8 + count * _EXTENT.size :], buffers=buffers)


class _Pickler(pickle.Pickler):
    """Leaves out the bytes of arrays, also of those that aren't contiguous or lie in a mapped file."""

    def reducer_override(self, x: object) -> Any:
        if type(x) not in (np.ndarray, np.memmap) or x.dtype.hasobject:
            return NotImplemented
        if type(x) is np.ndarray and x.flags.forc:
            return NotImplemented  # NumPy does so itself
        return np.array(x, order="C").__reduce_ex__(5)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
