"""CUDA graphs: the work of a stream, recorded once and launched repeatedly with one call.

Nothing runs during capture: kernels are recorded with the addresses of their arrays. So arrays are allocated
from a pool that only graphs use, and stay at their addresses as long as the graphs exist.

Source: CUDA Programming Guide, "CUDA Graphs", https://docs.nvidia.com/cuda/cuda-programming-guide/
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

from . import cublas
from .device import thread
from .kinds import cupy, refuse_capture

MODES = {
    "global": "streamCaptureModeGlobal",
    "thread_local": "streamCaptureModeThreadLocal",
    "relaxed": "streamCaptureModeRelaxed",
}
# cudaErrorStreamCaptureUnsupported … cudaErrorStreamCaptureWrongThread
_CAPTURE_ERRORS = range(900, 909)
_WAITED = (
    "what is captured in a CUDA graph must not wait for the GPU, as reading a number does: "
    ".item(), .tolist(), .cpu(), bool(), printing, nonzero(), indexing with a mask"
)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """Memory for the arrays of one or several graphs."""

    def __init__(self):
        self.memory = cupy().cuda.MemoryPool()
        _pools.add(self)


def pools() -> list[Pool]:
    """Returns the pools of all graphs."""
    return list(_pools)


@contextlib.contextmanager
def capture(pool: Pool, mode: str = "relaxed") -> Iterator[list]:
    """Context that captures the current stream, with new arrays from `pool`; the graph is appended to its
    value, a list.

    Args:
        pool: see `Pool`.
        mode: what else is forbidden during capture. CuPy's pool may have to call cudaMalloc, which only
            "relaxed" allows.

    Raises:
        ValueError: an unknown mode.
        RuntimeError: the stream is the default one; this thread is capturing; the code waits for the GPU.
    """
    cuda = cupy().cuda
    if mode not in MODES:
        raise ValueError(f"the capture mode must be one of {list(MODES)}, got {mode!r}")
    refuse_capture("another graph")
    stream = cuda.get_current_stream()
    if stream.ptr in (0, cuda.runtime.streamLegacy, cuda.runtime.streamPerThread):
        raise RuntimeError("a CUDA graph can't be captured on the default stream: use mytorch.cuda.stream")
    blas = cublas.library()
    if blas is not None:
        blas.handle(cuda.get_device_id())  # creating one waits for the GPU
    captured: list = []
    try:
        with cuda.using_allocator(pool.memory.malloc):
            stream.begin_capture(getattr(cuda.runtime, MODES[mode]))
            thread.is_capturing = True
            try:
                yield captured
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the failure may have invalidated the capture
                    stream.end_capture()
                raise
            else:
                captured.append(stream.end_capture())
            finally:
                thread.is_capturing = False
    except cuda.runtime.CUDARuntimeError as error:
        if error.status not in _CAPTURE_ERRORS:
            raise
        raise RuntimeError(f"{_WAITED} ({error})") from error
