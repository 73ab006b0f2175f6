"""The part of the Accelerator that talks to the other processes."""

from __future__ import annotations

import builtins
import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from . import operations, process
from .state import GradientState


class Processes:
    """Ranks, and collectives on nested tensors; in a single process they do nothing."""

    gradient_state: GradientState
    _triggers = _seen_triggers = 0  # counts: a signal's handler may set the trigger while it is checked

    num_processes = property(lambda self: process.world_size(), doc="How many processes there are.")
    process_index = property(lambda self: process.rank(), doc="The number of this one.")
    local_process_index = property(lambda self: process.local_rank(), doc="Its number on its machine.")
    is_main_process = property(lambda self: process.rank() == 0)
    is_local_main_process = property(lambda self: process.local_rank() == 0)
    is_last_process = property(lambda self: process.rank() == process.world_size() - 1)
    use_distributed = property(lambda self: process.world_size() > 1)

    @property
    def distributed_type(self) -> str:
        """ "NO", "MULTI_CPU" or "MULTI_GPU", as Hugging Face names them."""
        return ("MULTI_GPU" if self.device.type == "cuda" else "MULTI_CPU") if self.use_distributed else "NO"

    def wait_for_everyone(self) -> None:
        """Return when all processes are here."""
        process.barrier()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, in the first process of each machine only."""
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
        """Tell all processes something, to be seen by `check_trigger`: that this one wants to stop, say."""
        self._triggers += 1

    def set_trigger_on_signals(self) -> None:
        """Makes Ctrl-C (SIGINT) and SIGTERM call `set_trigger`; a second signal raises KeyboardInterrupt.

        The training loop can then save a checkpoint, on all processes, before it ends.
        """
        received: list[int] = []

        def handle(number: int, frame: FrameType | None) -> None:
            if received:
                raise KeyboardInterrupt
            received.append(number)
            self.set_trigger()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)

    def check_trigger(self) -> bool:
        """Returns whether any process called `set_trigger` since the last check; a collective."""
        count = self._triggers
        flag = np.array([float(count > self._seen_triggers)], np.float32)
        self._seen_triggers = count
        process.all_reduce_max(flag)
        return bool(flag[0])

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """The main process goes through the block before the others begin it: to download or to cache."""
        with _first(self.is_main_process):
            yield

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """The first process of each machine goes through the block before the others."""
        with _first(self.is_local_main_process):
            yield

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """This process's part of a list, a tuple, a tensor, or a dict of such of one length.

        Args:
            apply_padding: repeat the last element, so that all parts are as long as the longest.
        """
        yield split(inputs, process.world_size(), process.rank(), apply_padding)

    def gather(self, tensor: Any) -> Any:
        """The tensors of all processes, one after the other along the first dimension.

        Shapes: (n, …) -> (num_processes * n, …), () -> (num_processes,)
        """
        return operations.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """`gather` of what was computed from a batch, without the samples that come twice.

        At the end of a pass some samples are repeated so that all processes have as many; here each sample
        of the dataset comes once, in the loader's order. Of a single number for the whole batch nothing is
        left out. With `even_batches=False` nothing is repeated, and parts may be of different lengths; a
        process that has no more batches doesn't call this, which ends all of them with an error.

        Args:
            input_data: tensors, whose first dimension goes over the samples; or a list of any objects, one
                for each sample.
            use_gather_object: take a list of tensors, too, for objects: they may have different shapes.

        Raises:
            TypeError: objects that aren't in a list.
        """
        repeated = self.gradient_state.remainder
        if not use_gather_object and operations.are_tensors(input_data):
            gather = operations.gather if self.gradient_state.has_even_batches else operations.gather_uneven
            return operations.map_tensors(
                lambda x: _without(gather(x), repeated if x.ndim else 0), input_data
            )
        if not isinstance(input_data, (list, tuple)):
            raise TypeError(
                "gather_for_metrics(): expected tensors, or a list of objects, one for each sample, got "
                f"{type(input_data).__name__}"
            )
        return _without(operations.gather_object(input_data), repeated)

    def gather_object(self, obj: Any) -> list:
        """The objects of all processes in one list; lists are joined."""
        return operations.gather_object(obj)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """The "sum" or "mean" over all processes, times `scale`, in new tensors."""
        return operations.reduce(tensor, reduction, scale)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False
    ) -> Any:
        """Tensors filled up to the longest of all processes along `dim`, so that they can be gathered."""
        return operations.pad_across_processes(tensor, dim, pad_index, pad_first)


def _only(condition: Callable[[], bool], function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if condition() else None

    return call


def _without(found: Any, repeated: int) -> Any:
    return found[: len(found) - repeated] if repeated else found


@contextmanager
def _first(is_first: bool) -> Iterator[None]:
    if not is_first:
        process.barrier()
    yield
    if is_first:
        process.barrier()


def split(inputs: Any, parts: int, index: int, pads: bool) -> Any:
    """One of `parts` neighbouring parts, the first of which are one longer if it doesn't come out even.

    Raises:
        ValueError: a dict of different lengths.
        TypeError: it can't be cut.
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
