"""DataLoader: an iterable of batches of a dataset, loaded in this process or by workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...backends.device import CPU
from ...backends.door import in_force
from ...random import Generator, generator_on
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .fetch import Recipe
from .options import check_batches, check_workers, context_of
from .passes import Counted, Pass, Position, Requests, SingleProcess, from_dict, to_dict
from .pin import can_pin, pin_block, pinned_copy
from .sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    ShufflingSampler,
    load_state,
    set_epoch,
    state_of,
)

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from .pool import Pool

_PREFETCH_FACTOR = 2

T = TypeVar("T", covariant=True)


class DataLoader(Generic[T]):
    """An iterable of the batches of a dataset; each `for batch in loader` is one pass.

    Args:
        dataset: an object with `dataset[i]` and `len(dataset)`, or an IterableDataset.
        batch_size: number of samples in a batch; None returns single samples.
        shuffle: shuffle the indices in each pass, by the sampler's seed and the epoch (see `RandomSampler`).
        sampler: an iterable of indices; excludes `shuffle`.
        batch_sampler: an iterable of lists of indices; excludes batch_size, shuffle, sampler and drop_last.
        num_workers: number of worker processes that load ahead; 0 loads in this process.
        collate_fn: function from a list of samples to a batch; `default_collate` by default.
        pin_memory: return batches in page-locked memory, for asynchronous copies to a GPU.
        drop_last: drop the last batch if it is smaller.
        timeout: seconds to wait for a worker's batch; 0 waits forever.
        worker_init_fn: called in each worker with its id, before the first sample.
        multiprocessing_context: start method of the workers: "fork", "spawn", "forkserver", or a context.
        generator: generator of the seeds of shuffling and samples; the default generator if None.
        prefetch_factor: number of batches that each worker loads ahead; 2 by default.
        persistent_workers: keep the workers between passes.
        pin_memory_device: ignored; the memory is pinned for all GPUs.
        in_order: return batches in the order of the sampler, else as soon as they are loaded.

    The default generators of Python, NumPy and mytorch are seeded by (seed, epoch, i) before sample i of a
    map-style dataset is loaded: batches are the same for every number of workers. A dataset with
    `is_random = False` isn't seeded. Every worker iterates over a copy of an IterableDataset, and calls
    `get_worker_info()` to select its part.

    Raises:
        ValueError: arguments exclude each other or are out of range.
        TypeError: `num_workers` is not an int, or `multiprocessing_context` not a context.
        RuntimeError: while iterating: a worker died, or the timeout expired.

    >>> data = mytorch.utils.data.TensorDataset(mytorch.arange(6).view(3, 2))
    >>> [batch for (batch,) in mytorch.utils.data.DataLoader(data, batch_size=2)]
    [tensor([[0 1]
            [2 3]]), tensor([[4 5]])]
    """

    _initialized = False

    def __init__(
        self, dataset: Dataset[T], batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable | None = None, batch_sampler: Iterable[list] | None = None, num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None, generator: Generator | None = None, *,
        prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
        in_order: bool = True,
    ):
        self._iterable = isinstance(dataset, IterableDataset)
        check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        check_batches(self._iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if not self._iterable and sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            batches = BatchSampler(() if sampler is None else sampler, batch_size, drop_last)  # checks both
            batch_sampler = None if self._iterable else batches
        self._is_batched = batched = batch_sampler is not None or batch_size is not None
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = (prefetch_factor or _PREFETCH_FACTOR) if num_workers else None
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self._promised_length: int | None = None  # of an IterableDataset, once len(loader) was called
        self._seed: int | None = None
        self._epoch, self._set_epoch = 0, None
        self._resumed: Position | None = None  # from which the next pass continues
        self._begun: weakref.ref[Pass] | None = None  # the pass that was begun last
        self._pool: Pool | None = None
        self._initialized = True

    def __setattr__(self, name: str, value: object) -> None:
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
        if self._initialized and name in fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """The start method of the workers; None is the default of the platform."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: str | BaseContext | None) -> None:
        if context is not None and not self.num_workers:
            raise ValueError("multiprocessing_context option needs num_workers > 0")
        self._context = None if context is None else context_of(context)

    def __getstate__(self) -> dict[str, object]:
        """Returns what a copy has: it isn't iterated over, and has no workers."""
        return {**vars(self), "_begun": None, "_pool": None}

    @property
    def _order(self) -> Any:
        """The batch sampler, or the sampler."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def _sampler(self) -> Any:
        """The sampler, also that of a batch sampler."""
        return getattr(self._order, "sampler", self._order)

    @property
    def _sampler_epoch(self) -> int | None:
        """The epoch of the sampler's next pass; None if it counts no epochs."""
        epoch = getattr(self._sampler, "epoch", None)
        return epoch if isinstance(epoch, int) else None

    # The position: `_resumed`, of the next pass, before that of the current pass.

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, which fixes its order and random numbers.

        After `load_state_dict`, the epoch of the state continues at its position; another epoch starts at
        its beginning. `state_dict` is that of the next pass from now on, also in a loop.
        """
        if self._resumed is not None and self._resumed.epoch != epoch:
            self._resumed = None
        self._epoch = self._set_epoch = epoch
        set_epoch(self._order, epoch)
        set_epoch(self.dataset, epoch)
        if self._resumed is not None:
            self._resumed.sampler_epoch = self._sampler_epoch
        elif self._current() is not None:
            self._resumed = self._next_position()

    def _skip(self, num_batches: int) -> None:
        """Makes the next pass begin after the first batches of its epoch; only those of a stream are loaded.

        After `load_state_dict`, it doesn't begin before the position of the state.
        """
        self._resumed = self._next_position()
        self._resumed.skip(num_batches, self._iterable)

    def _next_position(self) -> Position:
        """Returns the position from which the next pass starts."""
        position, own = self._resumed, self._sampler_epoch
        if position is not None and own in (position.sampler_epoch, position.epoch):
            return position  # else the user has set the sampler to another epoch
        if self._seed is None:
            self._seed = generator_on(CPU, self.generator).next_seed()
        epoch = self._epoch if own is None else own
        if not isinstance(self._sampler, ShufflingSampler):  # it may repeat an order, random numbers don't
            epoch = max(epoch, self._epoch)
        streams = [None] * max(self.num_workers, 1)
        return Position(self._seed, epoch, state_of(self._order), streams, sampler_epoch=own)

    def _current(self) -> Pass | None:
        """Returns the current pass: that begun last, unless it has ended or its loop was left."""
        batches = None if self._begun is None else self._begun()
        return None if batches is None or batches.position.is_over else batches

    def is_last_batch(self) -> bool:
        """Returns whether no batch follows in the current pass; that of a stream is loaded to know it."""
        batches = self._current()
        return batches is not None and batches.is_last()

    def state_dict(self) -> dict:
        """Returns the position of the current pass, else of the next one, as numbers, lists and dicts.

        A pass is current from `iter(loader)` until it ends, its loop is left (by `break`, `return` or an
        error), `set_epoch` is called or another pass begins. Batches count once they are returned, not when
        they are loaded ahead. The state contains the `state_dict()` of samplers (at the beginning of the
        pass) and datasets that define it. A sampler without `state_dict` must repeat its order.
        """
        batches = self._current() if self._resumed is None else None
        return to_dict(self._next_position() if batches is None else batches.position, self._sizes())

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a `state_dict()`: the next pass continues after the last batch that had been returned.

        Raises:
            ValueError: not the state of a DataLoader, or of one with another batch size; for an
                IterableDataset, with another number of workers.
        """
        position = from_dict(state_dict, self._sizes(), max(self.num_workers, 1))
        load_state(self._order, position.sampler)
        self._resumed, position.sampler_epoch = position, self._sampler_epoch
        self._seed, self._epoch = position.seed, position.epoch

    def _sizes(self) -> dict[str, object]:
        return {"batch_size": self.batch_size, "drop_last": self.drop_last}

    # A pass.

    def __iter__(self) -> Iterator[Any]:
        in_force().once("a loop over a DataLoader")
        position = self._next_position()
        requests = self._requests(position)
        batches = self._begin(position, requests)
        self._resumed, self._begun, self._epoch = None, weakref.ref(batches), position.epoch + 1
        if self._promised_length is None:
            return batches
        return Counted(batches, self._promised_length, self.dataset)

    def _begin(self, position: Position, requests: Requests) -> Pass:
        is_pinned, order = self.pin_memory and can_pin(), None if self._iterable else self._order
        if self.num_workers == 0:
            return SingleProcess(order, self._recipe(), position, requests, is_pinned)
        from .pool import WithWorkers  # here, since importing multiprocessing takes long

        pool = self._pool
        if pool is None or not pool.close.alive or pool.job.num_workers != self.num_workers:
            pool = self._new_pool(position, is_pinned)
        if self.persistent_workers:
            self._pool = pool
        return WithWorkers(
            order, pool, position, requests, self._set_epoch,
            self.prefetch_factor or _PREFETCH_FACTOR, self.in_order, self.persistent_workers,
        )

    def _requests(self, position: Position) -> Requests:
        """Returns the numbers and indices of the remaining batches."""
        if self._iterable:
            return zip(count(position.batches), iter(lambda: None, 0))
        return _remaining(iter(self._order), position)

    def _recipe(self) -> Recipe:
        return Recipe(
            self.dataset, self.collate_fn, self.batch_size, self.drop_last, self._is_batched, self._iterable
        )

    def _new_pool(self, position: Position, is_pinned: bool) -> Pool:
        from .pool import Pool
        from .worker import Job

        job = Job(self._recipe(), 0, self.num_workers, position.seed, position.epoch, self.worker_init_fn)
        mirror = {"copy": pinned_copy, "pin": pin_block} if is_pinned else {"copy": np.copy}
        return Pool(job, self._context or context_of(None), self.timeout, mirror)

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._order)
        self._promised_length = len(self.dataset)
        if self.batch_size is None:
            return self._promised_length
        return len(BatchSampler(self.dataset, self.batch_size, self.drop_last))


def _remaining(batches: Iterator[Any], position: Position) -> Requests:
    done, ahead = position.batches, list(position.ahead)  # a copy: the position changes
    for number, indices in enumerate(batches):
        if number >= done and number not in ahead:
            yield number, indices
