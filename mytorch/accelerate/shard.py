"""Sharing out batches among processes, so that all have as many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ..utils.data import IterableDataset, Sampler
from ..utils.data.sampler import load_state, set_epoch, state_of


def deal(groups: list[list], world_size: int, rank: int) -> tuple[list, int]:
    """One process's part of up to `world_size` batches, and how many samples are repeated over all parts.

    Whole batches are dealt one to each. Else the samples are cut into `world_size` equal parts, for which
    some of the first ones come again at the end.
    """
    if len(groups) == world_size and all(len(group) == len(groups[0]) for group in groups):
        return groups[rank], 0
    samples = [sample for group in groups for sample in group]
    each = -(-len(samples) // world_size)
    repeated = each * world_size - len(samples)
    samples += [samples[i % len(samples)] for i in range(repeated)]
    return samples[rank * each : (rank + 1) * each], repeated


class ShardedBatchSampler(Sampler[list]):
    """Every `world_size`-th batch of another batch sampler, from the `rank`-th on.

    Args:
        batch_sampler: the same on all processes; gives lists of indices.

    Attributes:
        duplicates: the samples that were repeated at the end of the last pass, over all processes.
    """

    def __init__(self, batch_sampler: Any, world_size: int, rank: int):
        self.batch_sampler, self.world_size, self.rank = batch_sampler, world_size, rank
        self.duplicates = 0

    sampler = property(lambda self: getattr(self.batch_sampler, "sampler", self.batch_sampler))
    batch_size = property(lambda self: getattr(self.batch_sampler, "batch_size", None))
    drop_last = property(lambda self: getattr(self.batch_sampler, "drop_last", False))

    def __iter__(self) -> Iterator[list]:
        return self._mine(iter(self.batch_sampler))  # the sampler's pass begins here

    def _mine(self, batches: Iterator[list]) -> Iterator[list]:
        self.duplicates = 0
        while group := list(islice(batches, self.world_size)):
            if len(group) == self.world_size or not self.drop_last:
                mine, self.duplicates = deal([list(batch) for batch in group], self.world_size, self.rank)
                yield mine

    def __len__(self) -> int:
        whole, rest = divmod(len(self.batch_sampler), self.world_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.batch_sampler, epoch)

    def state_dict(self) -> dict | None:
        return state_of(self.batch_sampler)

    def load_state_dict(self, state_dict: dict | None) -> None:
        load_state(self.batch_sampler, state_dict)


class ShardedStream(IterableDataset):
    """The samples of a stream that belong to this process, a batch at a time.

    Every process goes over the whole stream, which must be the same everywhere. So does each worker with its
    copy of the stream: worker i of every process has the same one, and they share that.

    Attributes:
        __wrapped__: the stream, which `get_worker_info().dataset` shows.
        duplicates: as of `ShardedBatchSampler`.
    """

    def __init__(self, dataset: Iterable, batch_size: int, drop_last: bool, world_size: int, rank: int):
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.world_size, self.rank, self.duplicates = world_size, rank, 0

    __wrapped__ = property(lambda self: self.dataset)

    def __iter__(self) -> Iterator[Any]:
        self.duplicates = 0
        samples, together = iter(self.dataset), self.batch_size * self.world_size
        while group := list(islice(samples, together)):
            if len(group) == together:
                yield from group[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]
            elif not self.drop_last:
                mine, self.duplicates = deal([group], self.world_size, self.rank)
                yield from mine

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.dataset, epoch)


class WithDuplicates:
    """A collate_fn that adds how many samples of a batch are repeated, over all processes.

    Only the worker that loads the batch knows: its `ShardedStream` has come to its end.
    """

    def __init__(self, collate_fn: Callable[[Any], Any], stream: ShardedStream):
        self.collate_fn, self.stream = collate_fn, stream

    def __call__(self, samples: Any) -> tuple[Any, int]:
        batch = self.collate_fn(samples)
        return batch, self.stream.duplicates
