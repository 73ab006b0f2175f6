"""From indices, or from a stream, to a batch: in the main process without workers, else in each worker."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from .collate import default_collate, default_convert
from .dataset import Dataset, loads_many
from .seeding import Seeder

COLLATING, MANY = -1, -2  # places in a batch that are no sample's


class StreamEnded(Exception):
    """An IterableDataset has no more samples."""


@dataclass
class Recipe:
    """How a loader makes batches of its dataset.

    Attributes:
        batch_size: of an IterableDataset's batches; None means single samples.
        is_batched: `collate_fn` gets lists of samples.
    """

    dataset: Dataset
    collate_fn: Callable[[Any], Any]
    batch_size: int | None
    drop_last: bool
    is_batched: bool
    is_iterable: bool

    @property
    def is_random(self) -> bool:
        """Whether the dataset or collate_fn may draw random numbers."""
        known = (default_collate, default_convert)
        return self.collate_fn not in known or getattr(self.dataset, "is_random", True)


class Fetcher:
    """Makes the batches of one pass.

    Args:
        seeder: called for every sample.
        progress: its last entry is kept at the place in the batch, for messages.
        collating: the context in which collate_fn is called.
    """

    def __init__(
        self, recipe: Recipe, seeder: Seeder, progress: MutableSequence[int] | None = None,
        collating: Callable[[], AbstractContextManager] = nullcontext,
    ):  # fmt: skip
        self.recipe, self.seeder, self.collating = recipe, seeder, collating
        self.progress = [0] if progress is None else progress

    def _collate(self, samples: Any) -> Any:
        self.progress[-1] = COLLATING
        with self.collating():
            return self.recipe.collate_fn(samples)

    def state(self) -> dict | None:
        """Returns what a later fetcher needs to continue the stream here; None for a map-style dataset."""
        return None


class MapFetcher(Fetcher):
    """Batches of a dataset with indices."""

    def __call__(self, number: int, indices: Any) -> Any:
        """Returns batch `number` of the pass, of the samples `indices` (one index if nothing is batched)."""
        dataset, is_batched = self.recipe.dataset, self.recipe.is_batched
        if is_batched and loads_many(dataset):
            self.progress[-1] = MANY
            self.seeder.sample(indices[0] if len(indices) else None, number, 0)
            return self._collate(dataset.__getitems__(indices))
        samples = []
        for place, index in enumerate(indices if is_batched else [indices]):
            self.progress[-1] = place
            self.seeder.sample(index, number, place)
            samples.append(dataset[index])
        return self._collate(samples if is_batched else samples[0])


class StreamFetcher(Fetcher):
    """Batches of one copy of an IterableDataset.

    A dataset with `state_dict()` and `load_state_dict(state)` continues from its state; another one is read
    again from its beginning, and the samples before are dropped.
    """

    def start(self, copy: int, state: dict | None) -> StreamFetcher:
        """Begins the stream of worker `copy`, or continues it from a state."""
        self.copy, self.samples, self.ended = copy, 0, False
        dataset, skipped = self.recipe.dataset, 0
        if state is not None:
            self.ended, skipped = state["ended"], state["samples"]
            if state["dataset"] is not None:
                dataset.load_state_dict(state["dataset"])
                self.samples, skipped = skipped, 0
        if not self.ended:
            self.seeder.sample(None, copy)
            self._iterator = iter(dataset)
            with suppress(StreamEnded):  # the stream may be shorter this time
                for _ in range(skipped):
                    self._next()
        return self

    def __call__(self, number: int, indices: None) -> Any:
        """Returns the next batch.

        Raises:
            StreamEnded: the stream has no more.
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
        if self.ended:  # an iterator that has ended need not say so again
            raise StreamEnded
        self.progress[-1] = self.samples
        self.seeder.sample(None, self.copy, self.samples)
        try:
            sample = next(self._iterator)
        except StopIteration:
            self.ended = True
            raise StreamEnded from None
        self.samples += 1
        return sample

    def state(self) -> dict:
        get = getattr(self.recipe.dataset, "state_dict", None)
        return {"ended": self.ended, "samples": self.samples, "dataset": None if get is None else get()}


def make_fetcher(
    recipe: Recipe, seeder: Seeder, copy: int, state: dict | None, **options: Any
) -> MapFetcher | StreamFetcher:
    """Returns the fetcher of one pass.

    Args:
        copy: the worker's id; 0 in the main process.
        state: of the stream, to continue from.
    """
    if recipe.is_iterable:
        return StreamFetcher(recipe, seeder, **options).start(copy, state)
    return MapFetcher(recipe, seeder, **options)


def place_name(is_iterable: bool, indices: int | Sequence[int] | None, place: int) -> str:
    """Returns what was being loaded, in words."""
    if is_iterable:
        return "the batch's collate_fn" if place == COLLATING else f"sample {place} of its stream"
    if not isinstance(indices, (list, tuple)):
        return f"sample {indices!r}" if place != COLLATING else f"the collate_fn of sample {indices!r}"
    if place >= 0:
        return f"sample {indices[place]!r}"
    text = repr(indices) if len(indices) <= 8 else f"[{', '.join(map(repr, indices[:8]))}, …]"
    return f"{'the collate_fn of ' if place == COLLATING else ''}samples {text}"
