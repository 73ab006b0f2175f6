"""Distributing the samples of batches and streams over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ..utils.data import BatchSampler, IterableDataset, Sampler
from ..utils.data.sampler import load_state, set_epoch, state_of


def distribute(groups: list[list], world_size: int, rank: int, even: bool = True) -> tuple[list, int]:
    """Returns one process's part of up to `world_size` batches, and the number of repeated samples in all.

    Each process gets one of `world_size` whole batches. Of fewer, the samples are split into equal parts, for
    which some of the first ones are repeated at the end.

    Args:
        even: if False, nothing is repeated, and some processes may get nothing.
    """
    if not even:
        return (groups[rank] if rank < len(groups) else []), 0
    if len(groups) == world_size and all(len(group) == len(groups[0]) for group in groups):
        return groups[rank], 0
    samples = [sample for group in groups for sample in group]
    each = -(-len(samples) // world_size)
    repeated = each * world_size - len(samples)
    samples += [samples[i % len(samples)] for i in range(repeated)]
    return samples[rank * each : (rank + 1) * each], repeated


def chunks(samples: list, each: int) -> list[list]:
    """Returns contiguous parts of `each` samples; the last one may be shorter."""
    return [samples[i : i + each] for i in range(0, len(samples), each)]


def part_of_batch(batch_size: int | None, world_size: int) -> int:
    """Returns the number of samples that each process gets of a batch.

    Raises:
        ValueError: the batch size is no multiple of the number of processes, or unknown.
    """
    if batch_size is None:
        raise ValueError("split_batches=True: the batch sampler has no batch_size that could be divided")
    if batch_size % world_size:
        raise ValueError(
            f"split_batches=True: a batch of {batch_size} can't be divided evenly over {world_size} processes"
        )
    return batch_size // world_size


class ShardedBatchSampler(Sampler[list]):
    """Every `world_size`-th batch of another batch sampler, from the `rank`-th on; or a part of each.

    Args:
        batch_sampler: the same on all processes; yields lists of indices.
        split_batches: yield a part of each batch.

    Attributes:
        even_batches: all processes get the same number of batches and samples; can be set between two passes.
        duplicates: number of samples that were repeated at the end of the last pass, over all processes.

    Raises:
        ValueError: `split_batches`, and their size is no multiple of `world_size`.
    """

    def __init__(
        self, batch_sampler: Iterable[list], world_size: int, rank: int, split_batches: bool = False,
        even_batches: bool = True,
    ):
        self.batch_sampler, self.world_size, self.rank = batch_sampler, world_size, rank
        self.even_batches, self.duplicates = even_batches, 0
        self._part = part_of_batch(self.batch_size, world_size) if split_batches else None

    sampler = property(lambda self: getattr(self.batch_sampler, "sampler", self.batch_sampler))
    batch_size = property(lambda self: getattr(self.batch_sampler, "batch_size", None))
    drop_last = property(lambda self: getattr(self.batch_sampler, "drop_last", False))

    def __iter__(self) -> Iterator[list]:
        return self._mine(iter(self.batch_sampler))  # the sampler's pass begins here

    def _mine(self, batches: Iterator[list]) -> Iterator[list]:
        self.duplicates = 0
        while group := self._group(batches):
            if len(group) == self.world_size or not self.drop_last:
                mine, self.duplicates = distribute(group, self.world_size, self.rank, self.even_batches)
                if mine:
                    yield mine

    def _group(self, batches: Iterator[list]) -> list[list]:
        """Returns the next batches of all processes: one for each, or fewer at the end."""
        if self._part is None:
            return [list(batch) for batch in islice(batches, self.world_size)]
        return chunks(list(next(batches, [])), self._part)

    def __len__(self) -> int:
        whole, rest = divmod(self._count(), self.world_size)
        return whole + (not self.drop_last and rest > (0 if self.even_batches else self.rank))

    def _count(self) -> int:
        """Returns the number of batches, or parts of batches, of all processes together."""
        if self._part is None:
            return len(self.batch_sampler)
        if self.even_batches or self.drop_last:
            return len(self.batch_sampler) * self.world_size
        if type(self.batch_sampler) is not BatchSampler:  # only its last batch may be short
            raise TypeError(f"the number of samples of {type(self.batch_sampler).__name__} is unknown")
        return -(-len(self.sampler) // self._part)

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.batch_sampler, epoch)

    def state_dict(self) -> dict | None:
        return state_of(self.batch_sampler)

    def load_state_dict(self, state_dict: dict | None) -> None:
        load_state(self.batch_sampler, state_dict)


class ShardedStream(IterableDataset):
    """The samples of a stream that belong to this process, a batch at a time.

    Every process iterates over the whole stream, which must be the same everywhere. So does each worker with
    its copy of the stream, which worker i of every process shares.

    Attributes:
        __wrapped__: the stream, which `get_worker_info().dataset` shows.
        even_batches, duplicates: as of `ShardedBatchSampler`.
    """

    def __init__(
        self, dataset: Iterable, batch_size: int, drop_last: bool, world_size: int, rank: int,
        even_batches: bool = True,
    ):
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.world_size, self.rank, self.even_batches = world_size, rank, even_batches
        self.duplicates = 0

    __wrapped__ = property(lambda self: self.dataset)

    def __iter__(self) -> Iterator[Any]:
        self.duplicates = 0
        samples, together = iter(self.dataset), self.batch_size * self.world_size
        while group := list(islice(samples, together)):
            if len(group) == together or not self.drop_last:
                parts = chunks(group, self.batch_size)
                mine, self.duplicates = distribute(parts, self.world_size, self.rank, self.even_batches)
                yield from mine

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.dataset, epoch)


class WithDuplicates:
    """A collate_fn that adds the number of repeated samples of a batch, over all processes.

    Only the worker that loads the batch knows it: its `ShardedStream` has ended.
    """

    def __init__(self, collate_fn: Callable[[list], Any], stream: ShardedStream):
        self.collate_fn, self.stream = collate_fn, stream

    def __call__(self, samples: Any) -> tuple[Any, int]:
        batch = self.collate_fn(samples)
        return batch, self.stream.duplicates
