"""DataLoader: batches of a dataset, in the order of a sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ...random import Generator
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler, set_epoch


class DataLoader:
    """Goes over a dataset in batches, once for each `for batch in loader`.

    Args:
        dataset: has `dataset[i]` and `len(dataset)`, or is an IterableDataset.
        batch_size: samples in a batch; None gives single samples.
        shuffle: a new random order for each pass, by the sampler's seed and the epoch (see `RandomSampler`).
        sampler: an iterable of indices, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, instead of batch_size, shuffle, sampler and drop_last.
        num_workers: only 0: samples are loaded in this process, when the batch is asked for.
        collate_fn: makes a batch of a list of samples; `default_collate` if not given.
        drop_last: leave out the last batch if it is smaller.
        generator: where the seed of the shuffling is drawn from; by default the default generator.
        pin_memory, pin_memory_device: accepted; batches are in ordinary memory.
        timeout, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers, in_order:
            for workers only.

    Raises:
        ValueError: options that exclude each other or are out of range.
        NotImplementedError: `num_workers` above 0.
    """

    _initialized = False

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable[list] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        _check_workers(num_workers, timeout, multiprocessing_context, prefetch_factor, persistent_workers)
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        _check_batches(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size = None
        elif not self._iterable:
            if sampler is None:
                sampler = (
                    RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
                )
            if batch_size is not None:
                batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        elif batch_size is not None:
            BatchSampler((), batch_size, drop_last)  # checks the two; the dataset itself gives the order
        batched = batch_sampler is not None or batch_size is not None
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.multiprocessing_context, self.prefetch_factor = multiprocessing_context, prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
        if self._initialized and name in fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`: its order is the same whatever was loaded before."""
        for part in (self.sampler if self.batch_sampler is None else self.batch_sampler, self.dataset):
            set_epoch(part, epoch)

    def __iter__(self) -> Iterator[Any]:
        if self._iterable:
            return self._from_iterable()
        if self.batch_sampler is None:
            return (self.collate_fn(self.dataset[i]) for i in self.sampler)
        return (self.collate_fn(self._samples(indices)) for indices in self.batch_sampler)

    def _samples(self, indices: list) -> list:
        many = getattr(self.dataset, "__getitems__", None)
        return [self.dataset[i] for i in indices] if many is None else many(indices)

    def _from_iterable(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)

    def __len__(self) -> int:
        if not self._iterable:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        if self.batch_size is None:
            return len(self.dataset)
        return len(BatchSampler(self.dataset, self.batch_size, self.drop_last))


def get_worker_info() -> None:
    """What a dataset can ask to find out which worker process it is in: None in the main process."""
    return None


def _check_workers(
    num_workers: int, timeout: float, context: Any, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            f"num_workers option should be non-negative, got {num_workers}; use 0 to load in this process"
        )
    if num_workers > 0:
        raise NotImplementedError(
            f"num_workers={num_workers}: loading in worker processes isn't there yet; use num_workers=0"
        )
    if timeout < 0:
        raise ValueError(f"timeout option should be non-negative, got {timeout}")
    for name, is_given in (
        ("timeout", timeout > 0),
        ("prefetch_factor", prefetch_factor is not None),
        ("persistent_workers", persistent_workers),
        ("multiprocessing_context", context is not None),
    ):
        if is_given:
            raise ValueError(f"{name} option needs num_workers > 0")


def _check_iterable(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
            )


def _check_batches(
    batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last; "
            f"got batch_size={batch_size}, shuffle={shuffle}, sampler={sampler}, drop_last={drop_last}"
        )
    if batch_size is None and batch_sampler is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )
