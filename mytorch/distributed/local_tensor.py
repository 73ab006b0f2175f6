"""
Ranks in lockstep: one run of a program, whose arrays hold an array for each rank of a world.

    with LocalTensorMode(4) as mode:
        x = mode.rank_map(lambda rank: mytorch.tensor([float(rank)]))
        dist.all_reduce(x)                  # each rank's array is [6.]
        x._local_tensors[2]                 # that of rank 2

Where `worlds.run` runs a function once a rank, here it runs once, and each operation is done for all ranks.
So all ranks' values can be looked at; where Python would have to do something else on each rank, as in
`if x.item() > 0`, it is an error.

Source: https://github.com/pytorch/pytorch/blob/main/torch/distributed/_local_tensor/__init__.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..backends.device import CPU, DeviceLike, RawArray, as_device
from ..backends.door import thread
from ..backends.holding import HoldingArray, HoldingKind
from ..core.tensor import Tensor, from_raw, raw_of
from .backends import Request
from .backends.threads import Exchange, ThreadsBackend
from .process_group import ProcessGroup
from .world import destroy_process_group, get_world_size, init_process_group, is_initialized

__all__ = ["LocalTensorMode", "reconcile"]

_COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all")
_ELSE = "run it with mytorch.distributed.worlds.run(), where each rank runs by itself"


class LocalTensorMode(HoldingKind):
    """A context in which arrays hold one array a rank, and collectives exchange these.

    Without a default group, a fake one of that many ranks is there within the block.

    Args:
        ranks: the number of ranks, from 0 on.
        device: of the ranks' arrays.

    Raises:
        ValueError: the default group has another number of ranks.

    >>> from mytorch.distributed.local_tensor import LocalTensorMode
    >>> with LocalTensorMode(3) as mode:
    ...     x = mode.rank_map(lambda rank: mytorch.tensor([float(rank)]))
    ...     y = x * 2 + 1
    ...     [t.item() for t in y._local_tensors.values()]
    [1.0, 3.0, 5.0]
    """

    def __init__(self, ranks: int, device: DeviceLike = CPU):
        if not isinstance(ranks, int) or ranks < 1:
            raise ValueError(f"LocalTensorMode(): expected a positive number of ranks, got {ranks!r}")
        super().__init__(as_device(device))
        self.count = ranks
        self._has_made_group = False

    def __enter__(self) -> LocalTensorMode:
        if not is_initialized():
            init_process_group("fake", rank=0, world_size=self.count)
            self._has_made_group = True
        elif get_world_size() != self.count:
            raise ValueError(f"LocalTensorMode({self.count}): the default group has {get_world_size()} ranks")
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self._has_made_group:
            self._has_made_group = False
            destroy_process_group()

    def rank_map(self, function: Callable[[int], Tensor]) -> Tensor:
        """Returns the tensor that holds `function(rank)` for each rank: all of one shape and dtype."""
        with self._outside():
            parts = [raw_of(function(rank)) for rank in range(self.count)]
        return from_raw(HoldingArray(parts, self))

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Context in which arrays are those of one rank."""
        kinds = thread.kinds
        thread.kinds = tuple([kind for kind in kinds if kind is not self])
        try:
            yield
        finally:
            thread.kinds = kinds

    def tensor_map(self, tensor: Tensor, function: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Returns the tensor that holds `function(rank, its tensor)` for each rank."""
        tensors = _local_tensors(tensor)
        return self.rank_map(lambda rank: function(rank, tensors[rank]))

    def value(self, values: Sequence[Any]) -> Any:
        try:
            return super().value(values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {_ELSE}") from None

    def give(self, raw: HoldingArray) -> RawArray:
        try:
            return super().give(raw)
        except TypeError as error:
            raise TypeError(f"{error}: take tensor._local_tensors, or {_ELSE}") from None

    def collectives(self, group: ProcessGroup) -> Any:
        return _Lockstep(self, group)


class _Lockstep:
    """The collectives of a group of this rank, and those of the other ranks' groups like it, all at once."""

    def __init__(self, mode: LocalTensorMode, group: ProcessGroup):
        self._mode, self._groups = mode, _tiled(group.ranks, mode.count)

    def __getattr__(self, name: str) -> Callable[..., Request]:
        if name not in _COLLECTIVES:
            raise RuntimeError(f"{name}() is not the same on all ranks: {_ELSE}")

        def start(*args: Any) -> Request:
            exchange, requests = Exchange(), []
            for ranks in self._groups:
                for k, rank in enumerate(ranks):
                    backend = ThreadsBackend(exchange, ranks, len(ranks), k)
                    requests.append(getattr(backend, name)(*self._mode.part(args, rank)))
            for request in requests:
                request.finish()
            return Request()

        return start


def _tiled(ranks: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Returns the groups of all ranks, if this is one of them and the others are like it: moved by a number.

    Raises:
        RuntimeError: such groups don't have each rank once.
    """
    steps, left, found = [rank - ranks[0] for rank in ranks], dict.fromkeys(range(count)), []
    while left:
        first = next(iter(left)) - min(steps)
        moved = tuple([first + step for step in steps])
        if not left.keys() >= {*moved}:
            raise RuntimeError(f"groups like {ranks} don't have each of {count} ranks once: {_ELSE}")
        found.append(moved)
        for rank in moved:
            del left[rank]
    return found


def _local_tensors(tensor: Tensor) -> dict[int, Tensor]:
    """The tensor of each rank, by rank, of one made in a `LocalTensorMode`; they share its memory."""
    raw = raw_of(tensor)
    if not (isinstance(raw, HoldingArray) and isinstance(raw.kind, LocalTensorMode)):
        raise AttributeError("_local_tensors: the tensor was not made in a LocalTensorMode")
    return {rank: from_raw(part) for rank, part in enumerate(raw.parts)}


def reconcile(tensor: Tensor) -> Tensor:
    """Returns the tensor that all ranks have.

    Raises:
        TypeError: they have different ones.
    """
    tensors = _local_tensors(tensor)
    raw = raw_of(tensor)
    return from_raw(raw.kind.only_part(raw)) if tensors else tensor


Tensor._local_tensors = property(_local_tensors)
