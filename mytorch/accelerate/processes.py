"""The part of the Accelerator that talks to the other processes."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..tensor import Tensor
from . import operations, process
from .state import GradientState


class Processes:
    """Ranks, and collectives on nested tensors; in a single process they do nothing."""

    gradient_state: GradientState

    num_processes = property(lambda self: process.world_size(), doc="How many processes there are.")
    process_index = property(lambda self: process.rank(), doc="The number of this one.")
    local_process_index = property(lambda self: process.local_rank(), doc="Its number on its machine.")
    is_main_process = property(lambda self: process.rank() == 0)
    is_local_main_process = property(lambda self: process.local_rank() == 0)
    is_last_process = property(lambda self: process.rank() == process.world_size() - 1)
    use_distributed = property(lambda self: process.world_size() > 1)

    def wait_for_everyone(self) -> None:
        """Return when all processes are here."""
        process.barrier()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, in the first process of each machine only."""
        if self.is_local_main_process:
            builtins.print(*args, **kwargs)

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
        of the dataset comes once, in the loader's order.

        Args:
            use_gather_object: the input are lists of any objects, one for each sample.
        """
        repeated = self.gradient_state.remainder
        if use_gather_object:
            found = operations.gather_object(input_data)
            return found[: len(found) - repeated]
        found = operations.gather(input_data)
        return operations.map_tensors(lambda x: x[: x.shape[0] - repeated] if repeated else x, found)

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
