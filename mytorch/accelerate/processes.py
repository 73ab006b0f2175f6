"""The part of the Accelerator for several processes: ranks, collectives, decorators, triggers."""

from __future__ import annotations

import builtins
import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from .. import distributed as dist
from ..core.tensor import Tensor
from ..distributed.processes import is_ignored
from . import operations, world
from .gradient_state import GradientState

T = TypeVar("T")


class Processes:
    """num_processes, on_main_process, gather, …; in a single process collectives do nothing."""

    gradient_state: GradientState
    _triggers = _seen_triggers = 0  # counts: a signal handler may set the trigger during a check

    num_processes = property(lambda self: world.world_size(), doc="The number of processes.")
    process_index = property(lambda self: world.rank(), doc="The rank of this process.")
    local_process_index = property(lambda self: world.local_rank(), doc="Its rank on its machine.")
    is_main_process = property(lambda self: world.rank() == 0)
    is_local_main_process = property(lambda self: world.local_rank() == 0)
    is_last_process = property(lambda self: world.rank() == world.world_size() - 1)
    use_distributed = property(lambda self: world.world_size() > 1)

    @property
    def distributed_type(self) -> str:
        """ "NO", "MULTI_CPU" or "MULTI_GPU", as Hugging Face names them."""
        return ("MULTI_GPU" if self.device.type == "cuda" else "MULTI_CPU") if self.use_distributed else "NO"

    def wait_for_everyone(self) -> None:
        """Waits until all processes have called this."""
        world.barrier()

    def print(self, *args: object, **kwargs: Any) -> None:
        """Prints in the first process of each machine only."""
        if self.is_local_main_process:
            builtins.print(*args, **kwargs)

    def on_main_process(self, function: Callable) -> Callable:
        """Decorator: only the main process calls the function; the others get None."""
        return _only(lambda: self.is_main_process, function)

    def on_local_main_process(self, function: Callable) -> Callable:
        """Decorator: only the first process of each machine calls the function."""
        return _only(lambda: self.is_local_main_process, function)

    def on_last_process(self, function: Callable) -> Callable:
        """Decorator: only the last process calls the function."""
        return _only(lambda: self.is_last_process, function)

    def on_process(self, function: Callable | None = None, process_index: int = 0) -> Callable:
        """Decorator, with or without arguments: only process `process_index` calls the function."""
        if function is None:
            return functools.partial(self.on_process, process_index=process_index)
        return _only(lambda: self.process_index == process_index, function)

    def on_local_process(self, function: Callable | None = None, local_process_index: int = 0) -> Callable:
        """Decorator, with or without arguments: only that process of each machine calls the function."""
        if function is None:
            return functools.partial(self.on_local_process, local_process_index=local_process_index)
        return _only(lambda: self.local_process_index == local_process_index, function)

    def set_trigger(self) -> None:
        """Sets a flag that `check_trigger` returns on all processes: to stop, for instance."""
        self._triggers += 1

    def set_trigger_on_signals(self) -> None:
        """Makes Ctrl-C (SIGINT) and SIGTERM call `set_trigger`; a second signal raises KeyboardInterrupt.

        The training loop can then save a checkpoint, on all processes, before it ends. A signal that is
        ignored, as SIGINT by a program that a shell script started in the background, stays so.
        """
        received: list[int] = []

        def handle(number: int, frame: FrameType | None) -> None:
            if received:
                raise KeyboardInterrupt
            received.append(number)
            self.set_trigger()

        for number in (signal.SIGINT, signal.SIGTERM):
            if not is_ignored(number):
                signal.signal(number, handle)

    def check_trigger(self) -> bool:
        """Returns whether any process called `set_trigger` since the last check; a collective."""
        count = self._triggers
        flag = np.array([float(count > self._seen_triggers)], np.float32)
        self._seen_triggers = count
        if world.world_size() > 1:
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag[0])

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Context that the main process runs before the others: to download or to cache."""
        with _first(self.is_main_process):
            yield

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """Context that the first process of each machine runs before the others."""
        with _first(self.is_local_main_process):
            yield

    @contextmanager
    def split_between_processes(self, inputs: T, apply_padding: bool = False) -> Iterator[T]:
        """Context with this process's part of a list, a tuple, a tensor, or a dict of these of one length.

        Args:
            apply_padding: repeat the last element, so that all parts have the same length.
        """
        yield split(inputs, world.world_size(), world.rank(), apply_padding)

    def gather(self, tensor: T) -> T:
        """Returns the tensors of all processes, concatenated along the first dimension.

        Shapes: (n, …) -> (num_processes * n, …), () -> (num_processes,)
        """
        return operations.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Returns `gather` of the results of a batch, without those of repeated samples.

        At the end of a pass some samples are repeated, so that all processes get the same number; the result
        has each sample of the dataset once, in the loader's order. Of a 0-d tensor, such as the mean loss of
        a batch, it is the mean over all processes (Hugging Face returns the values of all).
        With `even_batches=False` nothing is repeated, and parts may have different lengths; a process without
        more batches doesn't call this, which is an error on all processes.

        Args:
            input_data: tensors with one row a sample, or a list with one object a sample.
            use_gather_object: gather a list of tensors as objects, which may have different shapes.

        Raises:
            TypeError: objects that aren't in a list.
        """
        repeated = self.gradient_state.remainder
        if not use_gather_object and operations.are_tensors(input_data):
            gather = operations.gather if self.gradient_state.has_even_batches else operations.gather_uneven
            return operations.map_tensors(
                lambda x: _without(gather(x), repeated) if x.ndim else operations.reduce(x), input_data
            )
        if not isinstance(input_data, (list, tuple)):
            raise TypeError(
                "gather_for_metrics(): expected tensors, or a list of objects, one for each sample, got "
                f"{type(input_data).__name__}"
            )
        return _without(operations.gather_object(input_data), repeated)

    def gather_object(self, obj: object) -> list:
        """Returns the objects of all processes in one list; lists are concatenated."""
        return operations.gather_object(obj)

    def reduce(self, tensor: T, reduction: str = "sum", scale: float = 1.0) -> T:
        """Returns the "sum" or "mean" over all processes, times `scale`, in new tensors."""
        return operations.reduce(tensor, reduction, scale)

    def pad_across_processes(
        self, tensor: T, dim: int = 0, pad_index: float = 0, pad_first: bool = False
    ) -> T:
        """Returns tensors padded to the longest of all processes along `dim`, for `gather`."""
        return operations.pad_across_processes(tensor, dim, pad_index, pad_first)


def _only(condition: Callable[[], bool], function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs) if condition() else None

    return call


def _without(gathered: T, repeated: int) -> T:
    return gathered[: len(gathered) - repeated] if repeated else gathered


@contextmanager
def _first(is_first: bool) -> Iterator[None]:
    if not is_first:
        world.barrier()
    yield
    if is_first:
        world.barrier()


def split(inputs: T, parts: int, index: int, pads: bool) -> T:
    """Returns one of `parts` contiguous parts, the first of which are longer by one if lengths differ.

    Raises:
        ValueError: a dict of different lengths.
        TypeError: another type.
    """
    if isinstance(inputs, dict):
        lengths = {name: len(value) for name, value in inputs.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"split_between_processes(): the lengths differ: {lengths}")
        return {name: split(value, parts, index, pads) for name, value in inputs.items()}
    if not isinstance(inputs, (list, tuple, Tensor)):
        raise TypeError(
            f"split_between_processes(): expected a list, tuple, dict or Tensor, got {type(inputs).__name__}"
        )
    whole, rest = divmod(len(inputs), parts)
    start = index * whole + min(index, rest)
    part = inputs[start : start + whole + (index < rest)]
    missing = whole + (rest > 0) - len(part)
    if not (pads and missing and len(inputs)):
        return part
    if isinstance(inputs, Tensor):
        from ..ops import cat

        return cat([part, inputs[-1:]])
    return part + inputs[-1:]
