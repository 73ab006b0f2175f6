"""From indices, or from a stream, to a batch: what the main process does without workers, and each worker."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from .dataset import Dataset, loads_many
from .seeding import Seeder

COLLATING, MANY = -1, -2  # places in a batch that are no sample's


class StreamEnded(Exception):
    """An IterableDataset has no more samples."""


@dataclass
class Recipe:
    """How a loader makes batches of its dataset.

    Attributes:
        batch_size: of an IterableDataset's batches; None gives single samples.
        is_batched: `collate_fn` gets lists of samples.
    """

    dataset: Dataset
    collate_fn: Callable[[Any], Any]
    batch_size: int | None
    drop_last: bool
    is_batched: bool
    is_iterable: bool


@dataclass
class Fetcher:
    """Makes the batches of one pass.

    Attributes:
        seeder: called for every sample.
        progress: its last entry is kept at the place in the batch, for messages.
        collating: the context in which collate_fn is called.
    """

    recipe: Recipe
    seeder: Seeder
    progress: MutableSequence[int] = field(default_factory=lambda: [0])
    collating: Callable[[], AbstractContextManager] = nullcontext

    def _collate(self, samples: Any) -> Any:
        self.progress[-1] = COLLATING
        with self.collating():
            return self.recipe.collate_fn(samples)

    def state(self) -> dict | None:
        """What a later fetcher of the same stream needs to go on from here; None if it needs nothing."""
        return None


class MapFetcher(Fetcher):
    """Batches of a dataset with indices."""

    def __call__(self, number: int, indices: Any) -> Any:
        """Batch `number` of the pass, of the samples `indices` (of the sample, if nothing is batched)."""
        return self.seeder.batch(self._load, number, indices)

    def _load(self, number: int, indices: Any) -> Any:
        dataset, progress, seeder = self.recipe.dataset, self.progress, self.seeder
        if self.recipe.is_batched and loads_many(dataset):
            progress[-1] = MANY
            seeder.sample(indices[0] if len(indices) else None, number, 0)
            return self._collate(dataset.__getitems__(indices))
        samples = []
        for place, index in enumerate(indices if self.recipe.is_batched else [indices]):
            progress[-1] = place
            if seeder.is_seeding:
                seeder.sample(index, number, place)
            samples.append(dataset[index])
        return self._collate(samples if self.recipe.is_batched else samples[0])


class StreamFetcher(Fetcher):
    """Batches of one copy of an IterableDataset.

    A dataset with `state_dict()` and `load_state_dict(state)` goes on from its state; another one is asked
    for the same samples again, which are dropped.
    """

    def start(self, copy: int, state: dict | None) -> StreamFetcher:
        """Begin the stream of the copy in worker `copy`, or go on from a state."""
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
        """The next batch.

        Raises:
            StreamEnded: there is none.
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
        return {
            "ended": self.ended,
            "samples": self.samples,
            "dataset": None if get is None else get(),
        }


def make_fetcher(recipe: Recipe, seeder: Seeder, copy: int, state: dict | None, **options: Any) -> Fetcher:
    """The fetcher of one pass.

    Args:
        copy: which worker it is for; 0 in the main process.
        state: of the stream, to go on from.
    """
    if recipe.is_iterable:
        return StreamFetcher(recipe, seeder, **options).start(copy, state)
    return MapFetcher(recipe, seeder, **options)


def place_name(recipe_is_iterable: bool, indices: Any, place: int) -> str:
    """What was being loaded, in words."""
    if recipe_is_iterable:
        return "the batch's collate_fn" if place == COLLATING else f"sample {place} of its stream"
    if not isinstance(indices, (list, tuple)):
        return f"sample {indices!r}" if place != COLLATING else f"the collate_fn of sample {indices!r}"
    if place >= 0:
        return f"sample {indices[place]!r}"
    text = repr(indices) if len(indices) <= 8 else f"[{', '.join(map(repr, indices[:8]))}, …]"
    return f"{'the collate_fn of ' if place == COLLATING else ''}samples {text}"
