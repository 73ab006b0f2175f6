"""Errors that a GPU finds, as an index that is out of bounds.

Looking for them from the CPU would have to wait. So a kernel notes the first one in page-locked memory of the
CPU, which a GPU can write to, and `kinds.waited` raises it: whatever waits for a GPU calls that, and only
reads a number. The kernel may be part of a CUDA graph.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np

from . import kinds
from .device import RawArray, device_of, on
from .kinds import cupy

_NOTE = """
if (((long long)x < low || (long long)x >= high) && !(has_ignored && (long long)x == ignored)) {
    long long* note = &word[0];
    if (atomicCAS((unsigned long long*)(note + 2), 0ull, 1ull) == 0ull) {  // nothing is noted yet
        note[1] = x;
        __threadfence_system();  // before the CPU can see the number of the error
        *(volatile long long*)note = error;
    }
}
"""
# The errors that may be noted, (class, text): kernels know an error by its position, counted from 1. A CUDA
# graph may name one as long as the process lives, so that none is ever taken out.
_errors: dict[tuple[type[Exception], str], int] = {}
_lock = threading.Lock()


class Note:
    """The memory, three numbers (an error or 0, the element, whether it is taken), and the kernel."""

    def __init__(self):
        self._memory = cupy().cuda.alloc_pinned_memory(24)
        self.numbers = np.frombuffer(self._memory, np.int64, 3)
        self.numbers[...] = 0
        self.kernel = cupy().ElementwiseKernel(
            "T x, int64 low, int64 high, bool has_ignored, int64 ignored, int64 error", "raw int64 word",
            _NOTE, "mytorch_check_range", no_return=True,
        )

    @functools.cache  # noqa: B019 - there is one note
    def on_gpu(self, index: int) -> RawArray:
        """Returns the memory as an array of a GPU: all of them reach it at the address that the CPU has."""
        memory = cupy().cuda.UnownedMemory(self._memory.ptr, 24, self._memory, index)
        return cupy().ndarray(3, np.int64, cupy().cuda.MemoryPointer(memory, 0))

    def raise_noted(self) -> None:
        """Raises the error that is noted, which then is no longer."""
        number, bad = int(self.numbers[0]), int(self.numbers[1])
        self.numbers[...] = 0
        error, text = list(_errors)[number - 1]
        raise error(text.replace("{bad}", str(bad)) + ". A GPU found it, after the call had returned")


def _note() -> Note:
    """Returns the note, which the first check of an index makes."""
    with _lock:
        if kinds.error_note is None:
            kinds.error_note = Note()
        return kinds.error_note


def _number_of(error: tuple[type[Exception], str]) -> int:
    with _lock:
        return _errors.setdefault(error, len(_errors) + 1)


def check_range(
    x: RawArray, low: int, high: int, text: str, error: type[Exception], ignored: int | None = None
) -> None:
    """`ops.bounds.check_range` of an array on a GPU: the error is raised after a later wait."""
    if x.size and low >= high and ignored is None:
        raise error(text.replace("{bad}", "of any value"))
    if x.size:
        number = _errors.get((error, text)) or _number_of((error, text))
        target, note = device_of(x), kinds.error_note or _note()
        with on(target):
            word = note.on_gpu(target.index)
            note.kernel(x, low, high, ignored is not None, ignored or 0, number, word)


def check_key(x: RawArray, key: Any, name: str) -> None:
    """Checks the arrays of integers in an index of an array on a GPU: CuPy takes them modulo the sizes."""
    items = [i for i in (key if isinstance(key, tuple) else (key,)) if i is not None]
    taken = [i.ndim if getattr(i, "dtype", None) == np.bool_ else 1 for i in items]
    dim = 0
    for k, item in enumerate(items):
        if item is Ellipsis:
            dim = x.ndim - sum(taken[k + 1 :])
            continue
        if getattr(item, "ndim", 0) and item.dtype.kind in "iu" and dim < x.ndim:
            size = x.shape[dim]
            text = f"{name}(): index {{bad}} is out of bounds for dimension {dim} with size {size}"
            check_range(cupy().asarray(item), -size, size, text, IndexError)
        dim += taken[k]


def getitem(x: RawArray, key: Any) -> RawArray:
    """Returns x[key] of an array on a GPU, with a check of the index."""
    check_key(x, key, "getitem")
    return x[key]


def setitem(x: RawArray, key: Any, value: Any) -> None:
    """Sets x[key] of an array on a GPU, with a check of the index."""
    check_key(x, key, "setitem")
    x[key] = value
