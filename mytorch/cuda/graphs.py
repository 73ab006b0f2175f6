"""Forward and backward of a training step as one CUDA graph: a single launch from the CPU.

def forward_backward(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss

graphed = mytorch.cuda.make_graphed_step(forward_backward, (x, y))
for x, y in batches:
    loss = graphed(x, y)  # the same tensor every time, with a new value
    optimizer.step()  # outside the graph, if Python counts the steps and schedules the learning rate
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..autograd import no_grad
from ..backends import graphs
from ..backends.device import thread
from ..backends.kinds import cupy, refuse_capture
from ..core.tensor import Tensor
from ..random import default_generator
from .devices import current_device, on_gpu, synchronize
from .memory import empty_cache
from .streams import Stream, current_stream
from .streams import stream as on_stream

_side_streams: dict[int, Stream] = {}


class CUDAGraph:
    """Captured work, see `graph`, that can be replayed."""

    def __init__(self):
        self._graph: Any = None
        self._pool: graphs.Pool | None = None
        self._device = -1
        self._capture: AbstractContextManager | None = None
        self._captured: list = []

    def capture_begin(self, pool: graphs.Pool | None = None, capture_error_mode: str = "relaxed") -> None:
        """Begins to capture the current stream; prefer `graph`.

        Raises:
            RuntimeError: this graph was captured before; the current stream is the default one.
        """
        if self._graph is not None:
            raise RuntimeError("this CUDAGraph has been captured: reset() it, or make a new one")
        pool = graph_pool_handle() if pool is None else pool
        default_generator("cuda").rng  # noqa: B018 - created now: in the graph each replay would seed it
        capture = graphs.capture(pool, capture_error_mode)
        self._captured = capture.__enter__()
        self._capture, self._pool, self._device = capture, pool, current_device()

    def capture_end(self) -> None:
        """Ends the capture."""
        self._end(None, None, None)

    def _end(self, *error: object) -> None:
        if self._capture is None:
            raise RuntimeError("capture_end() without capture_begin()")
        capture, self._capture = self._capture, None
        try:
            capture.__exit__(*error)
        finally:
            if self._captured:
                (self._graph,) = self._captured
            else:
                self._pool = None

    def replay(self) -> None:
        """Runs the work again, in the current stream, on the arrays that it was captured with.

        Raises:
            RuntimeError: nothing was captured.
        """
        if self._graph is None:
            raise RuntimeError("replay(): nothing was captured in this CUDAGraph")
        with on_gpu(self._device):
            self._graph.launch()

    def reset(self) -> None:
        """Deletes the graph; its memory is freed once no tensor uses it."""
        self._graph = self._pool = None

    def pool(self) -> graphs.Pool:
        """Returns its memory pool, for other graphs that are replayed in the order of their capture."""
        if self._pool is None:
            raise RuntimeError("pool(): nothing was captured in this CUDAGraph")
        return self._pool


class graph:  # noqa: N801 - PyTorch's name
    """Context that captures work into a graph instead of running it.

    Sizes and Python numbers are captured by value, tensors by address: before `replay`, write new inputs into
    the old tensors. The code must have run before, so that all kernels are compiled, and must not wait for
    the GPU. Numbers that Python computes are constants of the graph: seeds, learning rates, the step count of
    an optimizer.

    Args:
        cuda_graph: the graph to capture into.
        pool: `graph_pool_handle()` or another graph's `pool()`, to share memory; by default a new one.
        stream: the stream that is captured; by default `side_stream()`.
        capture_error_mode: what is forbidden during capture, see `backends.graphs.capture`.

    Raises:
        RuntimeError: the code waits for the GPU or copies from the CPU.
    """

    def __init__(
        self, cuda_graph: CUDAGraph, pool: graphs.Pool | None = None, stream: Stream | None = None,
        capture_error_mode: str = "relaxed",
    ):
        self.cuda_graph, self.pool, self.mode = cuda_graph, pool, capture_error_mode
        self.stream = side_stream() if stream is None else stream

    def __enter__(self) -> None:
        refuse_capture("another graph")
        synchronize(self.stream.device)
        gc.collect()  # garbage must not be freed during capture
        empty_cache()
        self._context = on_stream(self.stream)
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.mode)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self.cuda_graph._end(*error)
        finally:
            self._context.__exit__(None, None, None)


def graph_pool_handle() -> graphs.Pool:
    """Returns a new memory pool, which several graphs can share."""
    cupy()
    return graphs.Pool()


def is_current_stream_capturing() -> bool:
    """Returns whether this thread is capturing a graph."""
    return thread.is_capturing


def side_stream() -> Stream:
    """Returns the stream of the current GPU on which graphs are captured."""
    index = current_device()
    if index not in _side_streams:
        _side_streams[index] = Stream(index)
    return _side_streams[index]


def make_graphed_step(
    step: Callable[..., Any], sample_args: Sequence[Tensor], num_warmup_iters: int = 3,
    pool: graphs.Pool | None = None,
) -> Callable[..., Any]:
    """Returns a function that runs `step(*tensors)` by replaying a CUDA graph of it.

    Its arguments are copied to those of the capture; its results are the same tensors in every call,
    overwritten by the next one. `step` may run forward, backward and `clip_grad_norm_`, and must begin with
    `zero_grad()`. It first runs on a side stream, which creates all kernels, handles and buffers.

    Args:
        step: takes tensors, and returns a tensor, or a tuple, list or dict of them, or None.
        sample_args: tensors on the current GPU, of the shapes and dtypes of all later ones.
        num_warmup_iters: the number of runs before the capture, at least 1.
        pool: see `graph`.

    Raises:
        ValueError: no warm-up; in a later call, tensors of other shapes or dtypes.
        RuntimeError: see `graph`.
    """
    if num_warmup_iters < 1:
        raise ValueError(f"num_warmup_iters must be at least 1, got {num_warmup_iters}")
    with no_grad():
        inputs = [x.detach().clone() for x in sample_args]
    side = side_stream()
    side.wait_stream(current_stream())
    with on_stream(side):
        for _ in range(num_warmup_iters):
            step(*inputs)
    current_stream().wait_stream(side)
    captured = CUDAGraph()
    with graph(captured, pool):
        outputs = step(*inputs)

    def replay(*tensors: Tensor):
        _copy(tensors, inputs)
        captured.replay()
        return outputs

    return replay


def _copy(tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    expected, got = ([(tuple(x.shape), str(x.dtype)) for x in xs] for xs in (inputs, tensors))
    if expected != got:
        raise ValueError(f"this step was captured for inputs of {expected}, got {got}")
    with no_grad():
        for x, new in zip(inputs, tensors, strict=True):
            if new is not x:
                x.copy_(new)
