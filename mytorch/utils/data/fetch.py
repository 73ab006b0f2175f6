"""Fetchers: load the samples of a batch and collate them, in the main process or in a worker."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from .collate import default_collate, default_convert
from .dataset import Dataset, loads_many
from .seeding import Seeder

COLLATING, MANY = -1, -2  # positions in a batch: in collate_fn, in `__getitems__`


class StreamEnded(Exception):
    """An IterableDataset has no more samples."""


@dataclass
class Recipe:
    """The arguments of a DataLoader that a fetcher needs.

    Attributes:
        batch_size: of an IterableDataset; None for single samples.
        is_batched: `collate_fn` takes a list of samples.
    """

    dataset: Dataset
    collate_fn: Callable[[list], Any]
    batch_size: int | None
    drop_last: bool
    is_batched: bool
    is_iterable: bool

    @property
    def is_random(self) -> bool:
        """Whether the dataset or collate_fn may draw random numbers."""
        known = (default_collate, default_convert)
        return self.collate_fn not in known or getattr(self.dataset, "is_random", True)

    def fetcher(self, seeder: Seeder, copy: int, state: dict | None, **options: Any) -> Fetcher:
        """Returns the fetcher of one pass; arguments: see `Fetcher` and `StreamFetcher`."""
        if self.is_iterable:
            return StreamFetcher(self, seeder, copy, state, **options)
        return Fetcher(self, seeder, **options)


class Fetcher:
    """Fetches the batches of one pass over a map-style dataset.

    Args:
        seeder: called before every sample.
        progress: its last entry is set to the position in the batch, for error messages.
        collating: the context in which collate_fn is called.
    """

    def __init__(
        self, recipe: Recipe, seeder: Seeder, progress: MutableSequence[int] | None = None,
        collating: Callable[[], AbstractContextManager] = nullcontext,
    ):
        self.recipe, self.seeder, self.collating = recipe, seeder, collating
        self.progress = [0] if progress is None else progress

    def _collate(self, samples: object) -> Any:
        self.progress[-1] = COLLATING
        with self.collating():
            return self.recipe.collate_fn(samples)

    def state(self) -> dict | None:
        """Returns the state of the stream, for a later fetcher; None for a map-style dataset."""
        return None

    def __call__(self, number: int, indices: object) -> Any:
        """Returns batch `number` of the pass: the samples `indices`, or one sample if not `is_batched`."""
        dataset, is_batched = self.recipe.dataset, self.recipe.is_batched
        if is_batched and loads_many(dataset):
            self.progress[-1] = MANY
            self.seeder.sample(indices[0] if len(indices) else None, number, 0)
            return self._collate(dataset.__getitems__(indices))
        samples = []
        for position, index in enumerate(indices if is_batched else [indices]):
            self.progress[-1] = position
            self.seeder.sample(index, number, position)
            samples.append(dataset[index])
        return self._collate(samples if is_batched else samples[0])


class StreamFetcher(Fetcher):
    """Fetches the batches of one pass over a copy of an IterableDataset.

    A dataset with `state_dict()` and `load_state_dict(state)` continues from its state; any other is read
    from its beginning, and the samples before the state are discarded.

    Args:
        copy: id of the worker; 0 in the main process.
        state: `state()` of an earlier fetcher, to continue from; None for the beginning.
    """

    def __init__(self, recipe: Recipe, seeder: Seeder, copy: int, state: dict | None, **options: Any):
        super().__init__(recipe, seeder, **options)
        self.copy, self.samples, self.failed, self.ended = copy, 0, 0, False
        dataset, skipped, failed = self.recipe.dataset, 0, 0
        if state is not None:
            self.ended, skipped, failed = state["ended"], state["samples"], state.get("failed", 0)
            if state["dataset"] is not None:
                dataset.load_state_dict(state["dataset"])
                self.samples, skipped, self.failed, failed = skipped, 0, failed, 0
        if not self.ended:
            self.seeder.sample(None, copy)
            self._iterator = iter(dataset)
            self._skip(skipped, failed)

    def _skip(self, samples: int, failed: int) -> None:
        """Discards samples, and the errors of others, which the earlier pass raised already."""
        with suppress(StreamEnded):  # the stream may have become shorter
            while self.samples + self.failed < samples + failed:
                try:
                    self._next()
                except StreamEnded:
                    raise
                except Exception:
                    if self.failed > failed:
                        raise

    def __call__(self, number: int, indices: None) -> Any:
        """Returns the next batch.

        Raises:
            StreamEnded: the stream has no more samples.
        """
        if not self.recipe.is_batched:
            return self._collate(self._next())
        batch: list = []
        try:
            while len(batch) < self.recipe.batch_size:
                batch.append(self._next())
        except StreamEnded:
            if not batch or self.recipe.drop_last:
                raise
        return self._collate(batch)

    def _next(self) -> Any:
        if self.ended:  # an iterator need not raise StopIteration twice
            raise StreamEnded
        self.progress[-1] = self.samples
        self.seeder.sample(None, self.copy, self.samples)
        try:
            sample = next(self._iterator)
        except StopIteration:
            self.ended = True
            raise StreamEnded from None
        except Exception:
            self.failed += 1
            raise
        self.samples += 1
        return sample

    def state(self) -> dict:
        get = getattr(self.recipe.dataset, "state_dict", None)
        dataset = None if get is None else get()
        return {"ended": self.ended, "samples": self.samples, "failed": self.failed, "dataset": dataset}


def describe(is_iterable: bool, indices: int | Sequence[int] | None, position: int) -> str:
    """Returns a description of the sample at a position of a batch, for error messages."""
    if is_iterable:
        return "the batch's collate_fn" if position == COLLATING else f"sample {position} of its stream"
    if not isinstance(indices, (list, tuple)):
        return f"sample {indices!r}" if position != COLLATING else f"the collate_fn of sample {indices!r}"
    if position >= 0:
        return f"sample {indices[position]!r}"
    text = repr(indices) if len(indices) <= 8 else f"[{', '.join(map(repr, indices[:8]))}, …]"
    return f"{'the collate_fn of ' if position == COLLATING else ''}samples {text}"
