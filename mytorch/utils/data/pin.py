"""Page-locked (pinned) memory, and asynchronous copies of batches to a GPU."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import cuda
from ...backends.device import CPU, RawArray, as_device, device, is_available, is_on_host
from ...backends.kinds import cupy
from ...core.array import Array, wrap
from ...core.tensor import Tensor, from_raw, raw_of
from .collate import rebuilt

if TYPE_CHECKING:
    from .ring import Block

_PORTABLE = 1  # cudaHostRegisterPortable: for all GPUs


def can_pin() -> bool:
    """Returns whether a GPU is available; warns if not."""
    if is_available():
        return True
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, "
        "then device pinned memory won't be used.",
        stacklevel=4,
    )
    return False


def pinned_copy(raw: np.ndarray) -> np.ndarray:
    """Returns a copy in page-locked memory of CuPy's pool."""
    if not raw.nbytes:
        return raw.copy()
    memory = cupy().cuda.alloc_pinned_memory(raw.nbytes)
    out = np.frombuffer(memory, raw.dtype, raw.size).reshape(raw.shape)
    out[...] = raw
    return out


def pin_block(block: Block) -> None:
    """Registers a block as page-locked memory until it is unmapped; does nothing if that fails."""
    runtime, owner = cupy().cuda.runtime, os.getpid()
    try:
        runtime.hostRegister(block.address, block.size, _PORTABLE)
    except runtime.CUDARuntimeError:  # not supported: batches are copied to pinned memory
        return

    def unpin() -> None:
        if os.getpid() == owner:  # a forked copy has no GPU
            with suppress(runtime.CUDARuntimeError):  # at exit CUDA may have been shut down before
                runtime.hostUnregister(block_address)

    block_address, block.unpin = block.address, unpin


def pin_batch(batch: object) -> Any:
    """Returns the batch with its arrays in page-locked memory."""
    return _map_arrays(batch, pinned_copy)


class DevicePrefetcher:
    """Iterates over a loader's batches on a GPU; the next batch is copied while the current one is used.

        for tokens, targets in DevicePrefetcher(DataLoader(data, 12, num_workers=4, pin_memory=True), "cuda"):

    Copies run in a separate stream, concurrently with the current stream if the loader pins its memory. A
    copy waits for the work already in the current stream, which may still use the memory that it writes. On
    the CPU batches are returned unchanged.

    Args:
        loader: any iterable of batches.
        device: the device of the returned batches.
    """

    def __init__(self, loader: Iterable[Any], device: str | device = "cuda"):
        self.loader, self.device = loader, as_device(device)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader) if self.device is CPU else self._prefetched()

    def _prefetched(self) -> Iterator[Any]:
        stream = cuda.Stream(self.device)
        ready: deque[Any] = deque()
        sources: deque[tuple[cuda.Event, object]] = deque()  # keeps a source until its copy is complete
        batches, is_over = iter(self.loader), False
        peek = getattr(batches, "peek", None)  # of a DataLoader, whose position is that of the user
        try:
            while ready or not is_over:
                while len(ready) < 2 and not is_over:
                    try:
                        batch = peek() if ready and peek else next(batches)
                    except StopIteration:
                        is_over = True
                        break
                    event, moved = self._send(batch, stream)
                    ready.append((event, moved))
                    sources.append((event, batch))
                    batch = moved = None  # releases the references
                while len(sources) > 2 or (sources and sources[0][0].query()):
                    sources.popleft()[0].synchronize()
                if ready:
                    event, moved = ready.popleft()
                    cuda.current_stream(self.device).wait_event(event)
                    yield moved
                    moved = None
                    if ready and peek:
                        next(batches)  # counts the next one
        finally:
            for event, _ in sources:
                event.synchronize()

    def _send(self, batch: object, stream: cuda.Stream) -> tuple[cuda.Event, Any]:
        """Starts the copy of a batch; returns the event of its completion, and the copy."""
        stream.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(stream):
            moved = _map_arrays(batch, _upload)
            return stream.record_event(), moved


def _upload(raw: np.ndarray) -> RawArray:
    """Starts the copy of an array to the current GPU, in the current stream."""
    out = cupy().empty(raw.shape, raw.dtype)
    out.set(np.ascontiguousarray(raw).reshape(raw.shape))
    return out


def _map_arrays(x: object, function: Callable[[np.ndarray], RawArray]) -> Any:
    """Returns `x` with `function(raw)` for every numeric array on the CPU."""
    if isinstance(x, Tensor):
        raw = raw_of(x)
        return from_raw(function(raw)).requires_grad_(x.requires_grad) if is_on_host(raw) else x
    if isinstance(x, Array):
        return wrap(function(x._array)) if is_on_host(x._array) else x
    if is_on_host(x) and x.dtype.kind in "biufc":
        return function(x)
    if isinstance(x, (Mapping, Sequence)) and not isinstance(x, (str, bytes)):
        out = rebuilt(x, lambda key: _map_arrays(x[key], function))
        return tuple(out) if type(x) is tuple else out
    return x
