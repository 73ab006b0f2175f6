"""PreparedLoader: a DataLoader that gives each process its share, on its device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..backends.device import device
from ..utils.data import DataLoader, DistributedSampler, IterableDataset
from . import process
from .operations import map_tensors
from .shard import ShardedBatchSampler, ShardedStream, WithDuplicates, part_of_batch
from .state import GradientState


class PreparedLoader:
    """Goes over a DataLoader: batches are dealt out to the processes, and moved to the device.

    The order of all processes is that of process 0. At the end of a pass, and of each worker's stream, some
    samples may be repeated, so that all have as many batches: `Accelerator.gather_for_metrics` drops them.

    Args:
        loader: as for one process; its batch size is that of each.
        where: the device, or None to leave batches where they are.
        state: is told of the pass.
        split_batches: its batch size is that of all processes together.
        even_batches: False repeats no samples: some processes may have fewer in their last batch, or fewer
            batches.

    Attributes:
        given: the loader that was prepared; `num_workers`, `sampler` and so on are its own.
        loader: the loader of this process's share.
        end_of_dataloader: the batch that was given out is the last one.
    """

    def __init__(
        self, loader: DataLoader, where: device | None, state: GradientState, split_batches: bool = False,
        even_batches: bool = True,
    ):  # fmt: skip
        self.given, self.device, self.gradient_state = loader, where, state
        self.loader = shared_out(loader, process.world_size(), process.rank(), split_batches, even_batches)
        self._is_stream = isinstance(self.loader.dataset, ShardedStream)
        self.split_batches = split_batches and self._shard is not None
        self.end_of_dataloader, self._saved, self._is_in_step = False, None, process.world_size() == 1
        self._repeated = 0

    @property
    def duplicates(self) -> int:
        """How many samples of this batch, over all processes, are repeated."""
        if self._is_stream:
            return self._repeated
        shard = self._shard
        return shard.duplicates if shard is not None and self.end_of_dataloader else 0

    @property
    def _shard(self) -> ShardedBatchSampler | ShardedStream | None:
        """What shares out; None if nothing does."""
        shard = self.loader.dataset if self._is_stream else self.loader.batch_sampler
        return shard if isinstance(shard, (ShardedBatchSampler, ShardedStream)) else None

    @property
    def even_batches(self) -> bool:
        """Do all processes have as many batches, of as many samples? Can be set between two passes."""
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

    dataset = property(lambda self: self.given.dataset)
    batch_size = property(lambda self: self.given.batch_size)
    total_dataset_length = property(lambda self: len(self.given.dataset))

    @property
    def total_batch_size(self) -> int:
        """Samples in a batch, over all processes."""
        size = self.batch_size or getattr(self.given.batch_sampler, "batch_size", None) or 1
        return size * self._batches_at_once

    @property
    def _batches_at_once(self) -> int:
        """How many batches of the given loader the processes get together."""
        return 1 if self.split_batches else process.world_size()

    def __iter__(self) -> Iterator[Any]:
        self._get_in_step()
        batches = iter(self.loader)
        self.end_of_dataloader, self._saved = False, None
        self.gradient_state.loaders.append(self)
        try:
            for batch, is_last in self._marked(batches):
                self.end_of_dataloader = is_last
                if self._is_stream:
                    batch, self._repeated = batch
                yield batch if self.device is None else map_tensors(self._moved, batch)
                self._saved = None
        finally:
            self.gradient_state.loaders.remove(self)
            self._saved = None

    def _marked(self, batches: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
        """Each batch, and whether it is the last one."""
        length = _length(self.loader)
        if length < math.inf:
            for batch in batches:
                yield batch, self.loader.state_dict()["batches"] == length
            return
        ahead = next(batches, _END)  # only by trying can it be known; the position is then one too far
        while ahead is not _END:
            batch, self._saved = ahead, self.loader.state_dict()
            ahead = next(batches, _END)
            yield batch, ahead is _END

    def _moved(self, x: Any) -> Any:
        return x.to(self.device, non_blocking=True)

    def _get_in_step(self) -> None:
        """Before the first pass, take over the seeds of process 0."""
        if not self._is_in_step:
            self.loader.load_state_dict(process.broadcast_object(self.loader.state_dict()))
            self._is_in_step = True

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`."""
        self._get_in_step()
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where it is: see `DataLoader.state_dict`; the same on all processes, for any number of them.

        "num_processes" are those that get a batch each: with `split_batches` it is 1.
        """
        state = self.loader.state_dict() if self._saved is None else self._saved
        state = {**state, "batch_size": self.batch_size, "num_processes": self._batches_at_once}
        if self._is_stream:
            state["streams"] = _scaled(state["streams"], process.world_size(), 1)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next pass go on after the last batch that was given out before `state_dict()`.

        Raises:
            ValueError: there were other numbers of processes or samples in a batch, and the place is none
                between two of these batches.
        """
        state = dict(state_dict)
        before = state.pop("num_processes", 1) * (state["batch_size"] or 1)
        now = self._batches_at_once * (self.batch_size or 1)
        if before != now:
            places = [stream["samples"] for stream in state["streams"] or () if stream]
            if any(place % now for place in places or [state["batches"] * before]):
                raise ValueError(
                    f"load_state_dict(): {state_dict['batches']} batches of {before} samples, over all "
                    f"processes, are no whole number of batches of {now}, over {process.world_size()}"
                )
            state["batches"] = state["batches"] * before // now
        if self._is_stream:
            state["streams"] = _scaled(state["streams"], 1, process.world_size())
        self.loader.load_state_dict({**state, "batch_size": self.loader.batch_size})
        self._is_in_step = True

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "given":
            raise AttributeError(name)
        return getattr(self.given, name)


_END = object()


def shared_out(
    loader: DataLoader, world_size: int, rank: int, split_batches: bool = False, even_batches: bool = True
) -> DataLoader:
    """The loader of one process's share: see `PreparedLoader`.

    Raises:
        ValueError: a stream that workers load in any order: the processes' batches would not match.
        ValueError: a loader of single samples; `split_batches`, and they can't be shared out evenly.
    """
    if world_size == 1 or isinstance(loader.sampler, DistributedSampler):
        return loader
    options = {
        name: getattr(loader, name)
        for name in (
            "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
            "generator", "prefetch_factor", "persistent_workers", "in_order",
        )
    }  # fmt: skip
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
        raise ValueError("prepare(): a DataLoader with batch_size=None can't be shared out")
    sampler = ShardedBatchSampler(loader.batch_sampler, world_size, rank, split_batches, even_batches)
    return DataLoader(loader.dataset, batch_sampler=sampler, **options)


def _scaled(streams: list[dict | None] | None, times: int, over: int) -> list[dict | None] | None:
    """The states of streams by other counts of samples; these are read again, whatever state they keep."""
    return streams and [
        s and {**s, "samples": s["samples"] * times // over, "dataset": None} for s in streams
    ]


def _length(loader: DataLoader) -> float:
    if isinstance(loader.dataset, IterableDataset):
        return math.inf
    try:
        return len(loader)
    except TypeError:
        return math.inf


class SkippedLoader:
    """A loader without the first batches of each pass; those aren't loaded, unless they come from a stream.

    Args:
        loader: a DataLoader or a PreparedLoader.
        num_batches: how many are left out.
    """

    def __init__(self, loader: Any, num_batches: int):
        if not isinstance(num_batches, int) or num_batches < 0:
            raise ValueError(
                f"skip_first_batches(): num_batches is an int and not negative, got {num_batches!r}"
            )
        self.loader, self.num_batches = loader, num_batches

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.loader.dataset, IterableDataset):
            batches = iter(self.loader)
            for _ in range(self.num_batches):
                next(batches, None)
            yield from batches
            return
        if isinstance(self.loader, PreparedLoader):
            self.loader._get_in_step()
        state = self.loader.state_dict()
        self.loader.load_state_dict({**state, "batches": state["batches"] + self.num_batches})
        yield from self.loader

    def __len__(self) -> int:
        return max(len(self.loader) - self.num_batches, 0)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> SkippedLoader:
    """The loader without its first batches: to go on in the middle of an epoch."""
    return SkippedLoader(dataloader, num_batches)
