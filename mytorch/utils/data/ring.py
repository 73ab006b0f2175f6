"""Batches in memory that a worker and its parent share.

A worker has some blocks, each a file without a name: a memfd on Linux, which lives in memory and isn't
limited by /dev/shm, else an unlinked temporary file. It writes a batch into a free block and says where; the
parent's arrays lie in that very memory, and the block is free again when the last of them is gone. A batch
for which every block is too small gets a new, larger one.

Only what is around the arrays (dicts, tuples, strings, dtypes, shapes) is pickled, with the arrays' bytes out
of band (PEP 574). It comes from the parent's own child over an anonymous memory, never from outside.
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

_ALIGNMENT = 64  # of arrays in a block: a cache line
_PLACE = struct.Struct("<qq")  # offset and size of one array
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # else a block keeps a descriptor


def anonymous_file(size: int) -> int:
    """The descriptor of a new file of `size` bytes that has no name."""
    try:
        fd = os.memfd_create("mytorch-batch")
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


class Block:
    """Shared memory for one batch at a time.

    Args:
        number: its name, unique among its worker's.
        fd: of the file, which is closed here.

    Attributes:
        unpin: called before the memory goes, if a GPU was told of it.
    """

    def __init__(self, number: int, size: int, fd: int):
        self.number, self.size = number, size
        try:
            self.memory = mmap.mmap(fd, size, **_MAP_OPTIONS)
        finally:
            os.close(fd)
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.unpin: Callable[[], None] | None = None

    def __del__(self):
        if getattr(self, "unpin", None) is not None:
            self.unpin()


class Lease:
    """The use of a block: arrays on it hold this object, and `on_end(number)` is called after the last."""

    def __init__(self, block: Block, on_end: Callable[[int], Any]):
        self._block, self._on_end = block, on_end
        self.__array_interface__ = {
            "version": 3, "shape": (block.size,), "typestr": "|u1", "data": (block.address, False)
        }  # fmt: skip

    def __del__(self):
        self._on_end(self._block.number)


def lease(block: Block, on_end: Callable[[int], Any]) -> np.ndarray:
    """The bytes of a block, (size,) uint8: a view of it, and views of views, refer to the `Lease`."""
    return np.asarray(Lease(block, on_end))


class Ring:
    """A worker's blocks.

    Attributes:
        created: (number, size, fd) of the block that was made for the last batch; else None.
        dropped: the number of the block that it took the place of; else -1.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._with_parent: set[int] = set()
        self._with_us: set[int] = set()  # while a dataset keeps an array that was collated in a block
        self._needed = self._count = 0
        self._bytes: np.ndarray | None = None
        self.current, self._used = -1, 0
        self.created, self.dropped = None, -1

    def release(self, numbers: Iterable[int]) -> None:
        """The parent doesn't use these blocks any more."""
        self._with_parent.difference_update(numbers)

    @contextmanager
    def collating(self) -> Iterator[None]:
        """Inside, `default_collate` stacks into the next block, as far as there is space."""
        self.created, self.dropped = None, -1
        self._take(self._needed)
        with allocating(self._empty):
            yield

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        start = _aligned(self._used)
        if not size or self._bytes is None or start + size > len(self._bytes):
            return np.empty(shape, dtype)
        self._used = start + size
        return self._bytes[start : self._used].view(dtype).reshape(shape)

    def _take(self, size: int) -> None:
        """Make a free block of at least `size` bytes the current one, if there is one."""
        self._bytes, self.current, self._used = None, -1, 0
        for number, block in self._blocks.items():
            if block.size >= size and number not in self._with_parent and number not in self._with_us:
                self._with_us.add(number)
                self._bytes, self.current = lease(block, self._with_us.discard), number
                return

    def _create(self, size: int) -> None:
        """Make a new block the current one; it takes the place of a free one, which is too small."""
        free = self._blocks.keys() - self._with_parent - self._with_us
        if free:
            self.dropped = min(free)
            del self._blocks[self.dropped]
        size = _whole_pages(size + size // 2)  # of a file's pages, only those that are used take memory
        number, self._count = self._count, self._count + 1
        fd = anonymous_file(size)
        self._blocks[number] = Block(number, size, os.dup(fd))
        self.created = (number, size, fd)
        self._take(size)

    def write(self, value: Any) -> tuple[int, int]:
        """Write `value` into the current block, or into a new one: (offset, size) of its description."""
        stream, buffers = io.BytesIO(), []
        _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
        arrays = [np.asarray(buffer.raw()) for buffer in buffers]
        description = stream.getbuffer()
        tail = 8 + _PLACE.size * len(arrays) + len(description)
        places, end = self._places(arrays)
        if self._bytes is None or end + tail > len(self._bytes):
            self._bytes = None  # arrays that were stacked in it keep it until they are copied
            needed = sum(_aligned(a.nbytes) for a in arrays) + tail
            self._take(needed)
            if self._bytes is None:
                self._create(needed)
            places, end = self._places(arrays)
        for array, start in zip(arrays, places, strict=True):
            if array.nbytes and array.ctypes.data != self._blocks[self.current].address + start:
                self._bytes[start : start + array.nbytes] = array
        table = b"".join(_PLACE.pack(start, a.nbytes) for start, a in zip(places, arrays, strict=True))
        head = struct.pack("<q", len(arrays)) + table
        self._bytes[end : end + tail] = np.frombuffer(head + description, np.uint8)
        self._needed = end + tail
        self._with_parent.add(self.current)
        self._bytes = None
        return end, tail

    def _places(self, arrays: list[np.ndarray]) -> tuple[list[int], int]:
        """Where each array lies or will lie in the current block, and the end of the last one."""
        places, end = [], self._used
        block = self._blocks.get(self.current)
        for array in arrays:
            start = array.ctypes.data - block.address if block is not None and array.nbytes else -1
            if not (block is not None and 0 <= start <= block.size - array.nbytes):
                start = _aligned(end)
                end = start + array.nbytes
            places.append(start)
        return places, end


class Mirror:
    """The parent's side of a worker's ring.

    Args:
        pin: called with each new block, so that a GPU can read it; may be None. A block that it sets no
            `unpin` of isn't pinned, and what is in it is copied.
        own: makes a copy of some bytes that belongs to the user.
    """

    def __init__(self, own: Callable[[np.ndarray], np.ndarray], pin: Callable[[Block], None] | None = None):
        self.blocks: dict[int, Block] = {}
        self.freed: deque[int] = deque()  # appended to by whichever thread drops the last array
        self.lent = 0
        self._own, self._pin = own, pin

    def add(self, number: int, size: int, fd: int) -> None:
        """The worker has made a block."""
        self.blocks[number] = Block(number, size, fd)
        if self._pin is not None:
            self._pin(self.blocks[number])

    def drop(self, number: int) -> None:
        """The worker has no use for a block any more."""
        self.blocks.pop(number, None)

    def take_freed(self) -> list[int]:
        """The blocks that became free since the last call."""
        freed = [self.freed.popleft() for _ in range(len(self.freed))]
        self.lent -= len(freed)
        return freed

    def give_back(self, number: int) -> None:
        """Nobody wants to read this block."""
        self.lent += 1
        self.freed.append(number)

    def read(self, number: int, start: int, size: int, copy: bool) -> Any:
        """What `Ring.write` wrote; with `copy`, in memory of its own, and the block is free at once."""
        self.lent += 1
        data = lease(self.blocks[number], self.freed.append)
        copy = copy or (self._pin is not None and self.blocks[number].unpin is None)
        description = memoryview(data)[start : start + size]
        (count,) = struct.unpack_from("<q", description)
        buffers = []
        for i in range(count):
            begin, length = _PLACE.unpack_from(description, 8 + i * _PLACE.size)
            part = data[begin : begin + length]
            buffers.append(self._own(part) if copy else part)
        return pickle.loads(description[8 + count * _PLACE.size :], buffers=buffers)


class _Pickler(pickle.Pickler):
    """Leaves out the bytes of arrays, also of those that aren't contiguous or lie in a mapped file."""

    def reducer_override(self, x: Any) -> Any:
        if type(x) not in (np.ndarray, np.memmap) or x.dtype.hasobject:
            return NotImplemented
        if type(x) is np.ndarray and x.flags.forc:
            return NotImplemented  # it does so itself
        return np.array(x, order="C").__reduce_ex__(5)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _whole_pages(size: int) -> int:
    return -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
