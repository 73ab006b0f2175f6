"""The memory pool, which counts bytes as CuPy's does, its hooks, and the current allocator."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import device

UNIT = 512  # CuPy rounds every allocation up to a multiple


class MemoryPool:
    """Counts what is allocated from it and not freed yet; `malloc` gives memory of NumPy's."""

    def __init__(self, allocator: Any = None):
        self._used: dict[int, int] = defaultdict(int)
        self._total: dict[int, int] = defaultdict(int)
        self._limit = 0

    def used_bytes(self) -> int:
        return self._used[device.get_device()]

    def total_bytes(self) -> int:
        return self._total[device.get_device()]

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def n_free_blocks(self) -> int:
        return int(self.free_bytes() > 0)

    def free_all_blocks(self, stream: Any = None):
        self._total[device.get_device()] = self.used_bytes()

    def malloc(self, size: int) -> device.MemoryPointer:
        pointer = device.alloc(size)
        pointer.mem.block = Block(self, size)
        return pointer

    def set_limit(self, size: int | None = None, fraction: float | None = None):
        self._limit = size or 0

    def get_limit(self) -> int:
        return self._limit


class Block:
    """Some bytes of a pool, until it is deleted."""

    __slots__ = ("_pool", "_device", "_size")

    def __init__(self, pool: MemoryPool, size: int):
        self._pool, self._device = pool, device.get_device()
        self._size = -(-size // UNIT) * UNIT
        pool._used[self._device] += self._size
        pool._total[self._device] = max(pool._total[self._device], pool._used[self._device])
        facts = {"device_id": self._device, "size": size, "mem_size": self._size}
        for hook in get_memory_hooks().values():
            hook.malloc_preprocess(**facts)
            hook.malloc_postprocess(**facts, mem_ptr=1, pmem_id=id(self))

    def __del__(self):
        self._pool._used[self._device] -= self._size


class MemoryHook:
    """What CuPy calls when memory is taken from a pool; it is registered for one thread."""

    name = "MemoryHook"

    def __enter__(self):
        if self.name in get_memory_hooks():
            raise KeyError(f"memory hook {self.name} already exists")
        get_memory_hooks()[self.name] = self
        return self

    def __exit__(self, *error):
        del get_memory_hooks()[self.name]

    def malloc_preprocess(self, **facts):
        pass

    malloc_postprocess = free_preprocess = free_postprocess = alloc_preprocess = alloc_postprocess = (
        malloc_preprocess
    )


class _State(threading.local):
    def __init__(self):
        self.hooks: dict[str, MemoryHook] = {}
        self.allocators: list[Callable] = []


_state = _State()
_default = MemoryPool()


def reset() -> None:
    """Start again with an empty pool and no hooks."""
    global _state, _default
    _state, _default = _State(), MemoryPool()


def get_memory_hooks() -> dict[str, MemoryHook]:
    return _state.hooks


def get_default_memory_pool() -> MemoryPool:
    return _default


@contextmanager
def using_allocator(allocator: Callable | None = None) -> Iterator[None]:
    _state.allocators.append(allocator)
    try:
        yield
    finally:
        _state.allocators.pop()


def allocate(size: int) -> Block | None:
    """Count an array where the current allocator would take it from, which has to be a pool's `malloc`."""
    pool = _state.allocators[-1].__self__ if _state.allocators else _default
    return Block(pool, size) if size else None
