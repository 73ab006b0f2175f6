"""Shared memory for the batches of a worker.

Each worker has one anonymous file: a memfd on Linux, which isn't limited by /dev/shm, else an unlinked
temporary file. The file is sparse and consists of blocks, which can grow in place. The worker writes a batch
to a free block and sends its position; the parent's arrays are views of the block, which becomes free when
the last of them is deleted.

The containers of the arrays (dicts, tuples, strings, dtypes, shapes) are pickled, the data of the arrays are
out-of-band buffers (PEP 574). The parent unpickles only what its own worker wrote to the anonymous file.
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

_SPAN = 1 << 36  # bytes between the starts of two blocks
_ALIGNMENT = 64  # bytes, of arrays in a block: a cache line
_EXTENT = struct.Struct("<qq")  # offset and size of one array
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # else each block uses a descriptor


def shared_file() -> int:
    """Returns the descriptor of a new anonymous file, with one page for the worker's status."""
    try:
        fd = os.memfd_create("mytorch-batch")
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd


def map_status(fd: int) -> memoryview:
    """Returns the first page of a shared file, the status of the worker, as int64 numbers."""
    return memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("q")


class Block:
    """Shared memory for one batch at a time.

    Args:
        number: 1, 2, …, the position in the file.

    Attributes:
        unpin: called before the memory is unmapped; None unless it is page-locked.
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
    """The owner of the arrays on a block: calls `on_end(number)` when the last of them is deleted."""

    def __init__(self, block: Block, on_end: Callable[[int], object]):
        self._block, self._on_end = block, on_end
        self.__array_interface__ = {
            "version": 3, "shape": (block.size,), "typestr": "|u1", "data": (block.address, False)
        }

    def __del__(self):
        self._on_end(self._block.number)


def lease(block: Block, on_end: Callable[[int], object]) -> np.ndarray:
    """Returns the bytes of a block, (size,) uint8; all views of the array keep the `Lease` alive."""
    return np.asarray(Lease(block, on_end))


class Ring:
    """The blocks of a worker, as the worker uses them."""

    def __init__(self, fd: int) -> None:
        self._fd, self._blocks = fd, dict[int, Block]()
        self._sent: set[int] = set()
        self._kept: set[int] = set()  # blocks with live arrays in the worker
        self._block: Block | None = None  # the current one, for the next batch
        self._bytes: np.ndarray | None = None
        self._needed = self._used = 0

    def release(self, numbers: Iterable[int]) -> None:
        """Marks blocks as free that the parent no longer uses."""
        self._sent.difference_update(numbers)

    @contextmanager
    def collating(self) -> Iterator[None]:
        """Context in which `default_collate` stacks into a free block, up to its size."""
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
        """Selects a free block of at least `size` bytes; with `grow`, creates or enlarges one if needed."""
        self._block = self._bytes = None
        self._used = 0
        free = [n for n in self._blocks if n not in self._sent and n not in self._kept]
        number = next((n for n in free if self._blocks[n].size >= size), None)
        if number is None:
            if not grow:
                return
            number = free[0] if free else len(self._blocks) + 1
            size += size // 2  # for larger batches; unused pages take no memory
            size += -size % mmap.PAGESIZE
            if os.fstat(self._fd).st_size < number * _SPAN + size:
                os.ftruncate(self._fd, number * _SPAN + size)
            self._blocks[number] = Block(self._fd, number, size)
        self._kept.add(number)
        self._block = self._blocks[number]
        self._bytes = lease(self._block, self._kept.discard)

    def write(self, value: object) -> tuple[int, int, int, int]:
        """Writes a value to a block; returns the number and size of the block, offset and size for `read`."""
        stream, buffers = io.BytesIO(), []
        _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
        arrays = [np.asarray(buffer.raw()) for buffer in buffers]
        description = stream.getbuffer()
        tail = 8 + _EXTENT.size * len(arrays) + len(description)
        starts, end = self._place(arrays)
        if self._bytes is None or end + tail > len(self._bytes):
            self._bytes = None  # arrays stacked in the block keep it alive until they are copied
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
    """The blocks of a worker, as the parent uses them.

    Args:
        fd: descriptor of the worker's file.
        copy: returns a copy of bytes.
        pin: page-locks a new block, and sets its `unpin`; None without pinning. Batches of blocks that can't
            be page-locked are copied.
    """

    def __init__(
        self, fd: int, copy: Callable[[np.ndarray], np.ndarray], pin: Callable[[Block], None] | None = None
    ):
        self.blocks: dict[int, Block] = {}
        self.freed: deque[int] = deque()  # any thread may delete the last array
        self.lent = 0
        self._fd, self._copy, self._pin = fd, copy, pin

    def take_freed(self) -> list[int]:
        """Returns the numbers of the blocks that became free since the last call."""
        freed = [self.freed.popleft() for _ in range(len(self.freed))]
        self.lent -= len(freed)
        return freed

    def discard(self, number: int) -> None:
        """Frees a block without reading it."""
        self.lent += 1
        self.freed.append(number)

    def read(self, number: int, block_size: int, start: int, size: int, copy: bool) -> Any:
        """Returns a value written by `Ring.write`; with `copy`, as a copy, and frees the block."""
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
    """A pickler that stores all arrays out of band, including non-contiguous and memory-mapped ones."""

    def reducer_override(self, x: object) -> Any:
        if type(x) not in (np.ndarray, np.memmap) or x.dtype.hasobject:
            return NotImplemented
        if type(x) is not np.memmap and x.flags.forc:
            return NotImplemented  # NumPy stores it out of band
        return np.array(x, order="C").__reduce_ex__(5)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
