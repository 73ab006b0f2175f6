"""PreparedLoader: a DataLoader of each process's part of the batches, on its device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..backends.device import device
from ..utils.data import DataLoader, DistributedSampler, IterableDataset
from . import world
from .gradient_state import GradientState
from .operations import map_tensors
from .shard import ShardedBatchSampler, ShardedStream, WithDuplicates, part_of_batch
from .stateful import StateDict


class PreparedLoader:
    """Iterates over a DataLoader: batches are distributed to the processes, and moved to the device.

    The order of all processes is that of process 0. At the end of a pass, and of each worker's stream, some
    samples may be repeated, so that all processes get the same number of batches;
    `Accelerator.gather_for_metrics` drops them.

    Args:
        loader: a loader for one process; its batch size is that of each.
        target: the device, or None to leave batches on theirs.
        state: registers the pass.
        split_batches: the batch size is the total of all processes.
        even_batches: if False, no samples are repeated: some processes may get fewer samples in the last
            batch, or fewer batches.

    Attributes:
        original: the loader that was prepared, with its `num_workers`, `sampler` and so on.
        loader: the loader of this process's part.
        end_of_dataloader: the current batch is the last one.
        num_yielded: number of batches so far, over all passes.
    """

    def __init__(
        self, loader: DataLoader, target: device | None, state: GradientState, split_batches: bool = False,
        even_batches: bool = True,
    ):
        self.original, self.device, self.gradient_state = loader, target, state
        self.loader = loader_of_rank(loader, world.world_size(), world.rank(), split_batches, even_batches)
        self._is_stream = isinstance(self.loader.dataset, ShardedStream)
        self.split_batches = split_batches and self._shard is not None
        self.end_of_dataloader, self._has_seeds = False, world.world_size() == 1
        self._num_repeated, self.num_yielded = 0, 0

    @property
    def duplicates(self) -> int:
        """Number of repeated samples in this batch, over all processes."""
        if self._is_stream:
            return self._num_repeated
        shard = self._shard
        return shard.duplicates if shard is not None and self.end_of_dataloader else 0

    @property
    def _shard(self) -> ShardedBatchSampler | ShardedStream | None:
        """The sampler or stream that distributes the samples; None without one."""
        shard = self.loader.dataset if self._is_stream else self.loader.batch_sampler
        return shard if isinstance(shard, (ShardedBatchSampler, ShardedStream)) else None

    @property
    def even_batches(self) -> bool:
        """Whether all processes get the same number of batches and samples; can be set between two passes."""
        return self._shard is None or self._shard.even_batches

    @even_batches.setter
    def even_batches(self, value: bool) -> None:
        if self._is_stream and self.loader.num_workers and self.loader.persistent_workers:
            raise ValueError(
                f"even_batches={value}: the workers of an IterableDataset with persistent_workers=True have "
                "begun with another value"
            )
        if self._shard is not None:
            self._shard.even_batches = value

    dataset = property(lambda self: self.original.dataset)
    batch_size = property(lambda self: self.original.batch_size)
    total_dataset_length = property(lambda self: len(self.original.dataset))

    @property
    def total_batch_size(self) -> int:
        """Number of samples in a batch, over all processes."""
        size = self.batch_size or getattr(self.original.batch_sampler, "batch_size", None) or 1
        return size * self._batches_at_once

    @property
    def _batches_at_once(self) -> int:
        """Number of batches of the original loader that the processes get at once."""
        return 1 if self.split_batches else world.world_size()

    def __iter__(self) -> Iterator[Any]:
        self._synchronize_seeds()
        batches = iter(self.loader)
        is_last = getattr(batches, "is_last", self.loader.is_last_batch)  # a subclass has its own iterator
        self.end_of_dataloader = False
        self.gradient_state.loaders.append(self)
        try:
            for batch in batches:
                self.end_of_dataloader = is_last()
                self.num_yielded += 1
                if self._is_stream:
                    batch, self._num_repeated = batch
                yield batch if self.device is None else map_tensors(self._to_device, batch)
        finally:
            self.gradient_state.loaders.remove(self)

    def _to_device(self, x: Any) -> Any:
        return x.to(self.device, non_blocking=True)

    def _synchronize_seeds(self) -> None:
        """Copies the seeds of process 0, before the first pass."""
        if not self._has_seeds:
            self.loader.load_state_dict(world.broadcast_object(self.loader.state_dict()))
            self._has_seeds = True

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass: see `DataLoader.set_epoch`."""
        self._synchronize_seeds()
        self.loader.set_epoch(epoch)

    def _skip(self, num_batches: int) -> None:
        """Makes the next pass begin after its first batches: see `DataLoader._skip`."""
        self._synchronize_seeds()
        self.loader._skip(num_batches)

    def state_dict(self) -> StateDict:
        """Returns the position: see `DataLoader.state_dict`; the same for any number of processes.

        "num_processes" is the number of those that get a batch each: with `split_batches` 1.
        """
        state = self.loader.state_dict()
        state |= {"batch_size": self.batch_size, "num_processes": self._batches_at_once}
        if self._is_stream:
            state["streams"] = _scaled(state["streams"], world.world_size(), 1)
        return state

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Makes the next pass start after the last batch before `state_dict()`.

        Raises:
            ValueError: with another number of processes or batch size the position is inside a batch.
        """
        state = dict(state_dict)
        before = state.pop("num_processes", 1) * (state["batch_size"] or 1)
        now = self._batches_at_once * (self.batch_size or 1)
        if before != now:
            positions = [stream["samples"] for stream in state["streams"] or () if stream]
            if any(position % now for position in positions or [state["batches"] * before]):
                raise ValueError(
                    f"load_state_dict(): {state_dict['batches']} batches of {before} samples, over all "
                    f"processes, are no whole number of batches of {now}, over {world.world_size()}"
                )
            state["batches"] = state["batches"] * before // now
        if self._is_stream:
            state["streams"] = _scaled(state["streams"], 1, world.world_size())
        self.loader.load_state_dict({**state, "batch_size": self.loader.batch_size})
        self._has_seeds = True

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "original":
            raise AttributeError(name)
        return getattr(self.original, name)


def loader_of_rank(
    loader: DataLoader, world_size: int, rank: int, split_batches: bool = False, even_batches: bool = True
) -> DataLoader:
    """Returns the loader of one process's part: see `PreparedLoader`.

    Raises:
        ValueError: a stream with in_order=False, since the processes' batches would not match.
        ValueError: a loader of single samples; `split_batches` with an uneven batch size.
    """
    if world_size == 1 or isinstance(loader.sampler, DistributedSampler):
        return loader
    options = {
        name: getattr(loader, name)
        for name in (
            "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
            "generator", "prefetch_factor", "persistent_workers", "in_order",
        )
    }
    if isinstance(loader.dataset, IterableDataset):
        if loader.num_workers and not loader.in_order:
            raise ValueError(
                f"prepare(): an IterableDataset over {world_size} processes needs in_order=True, "
                f"got in_order=False with num_workers={loader.num_workers}"
            )
        size = loader.batch_size
        if split_batches:
            size = part_of_batch(size, world_size)
        stream = ShardedStream(loader.dataset, size or 1, loader.drop_last, world_size, rank, even_batches)
        options["collate_fn"] = WithDuplicates(loader.collate_fn, stream)
        return DataLoader(stream, size, drop_last=loader.drop_last, **options)
    if loader.batch_sampler is None:
        raise ValueError("prepare(): a DataLoader with batch_size=None can't be distributed")
    sampler = ShardedBatchSampler(loader.batch_sampler, world_size, rank, split_batches, even_batches)
    return DataLoader(loader.dataset, batch_sampler=sampler, **options)


def _scaled(streams: list[dict | None] | None, times: int, over: int) -> list[dict | None] | None:
    """Returns states of streams with scaled counts of samples, without those of the datasets."""
    return streams and [
        s and {**s, "samples": s["samples"] * times // over, "dataset": None} for s in streams
    ]


class SkippedLoader:
    """A loader without the first batches of each pass; only those of a stream are loaded.

    A pass that continues from a state that was loaded doesn't begin before its position.

    Args:
        loader: a DataLoader or a PreparedLoader.
        num_batches: number of batches to skip.
    """

    def __init__(self, loader: DataLoader | PreparedLoader, num_batches: int):
        if not isinstance(num_batches, int) or num_batches < 0:
            raise ValueError(
                f"skip_first_batches(): num_batches is an int and not negative, got {num_batches!r}"
            )
        self.loader, self.num_batches = loader, num_batches

    def __iter__(self) -> Iterator[Any]:
        self.loader._skip(self.num_batches)
        yield from self.loader

    def __len__(self) -> int:
        return max(len(self.loader) - self.num_batches, 0)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def skip_first_batches(dataloader: DataLoader | PreparedLoader, num_batches: int = 0) -> SkippedLoader:
    """Returns the loader without its first batches: see `Accelerator.skip_first_batches`."""
    return SkippedLoader(dataloader, num_batches)
