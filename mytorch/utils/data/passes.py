"""One pass over the data: what `iter(loader)` returns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sized
from typing import Any

from .dataset import IterableDataset
from .fetch import Recipe, StreamEnded, make_fetcher
from .seeding import Seeder
from .state import Position

Requests = Iterator[tuple[int, Any]]  # numbers of batches and their indices


class Pass(Iterator[Any]):
    """The batches of one pass, one after the other.

    Args:
        order: the sampler or batch sampler; None for a stream, whose number of batches isn't known.
    """

    def __init__(self, order: Sized | None):
        self._order = order

    def __len__(self) -> int:
        """Returns the number of batches of a whole pass.

        Raises:
            TypeError: it is a pass over an IterableDataset, or its sampler has no length.
        """
        if self._order is None:
            raise TypeError("a pass over an IterableDataset has no len(): how many batches come isn't known")
        return len(self._order)


class Counted(Pass):
    """A pass over a stream that warns about more samples than `len(loader)` has promised.

    Args:
        length: the dataset's `len`. With several workers, or `drop_last`, the number of batches isn't known;
            it can't be larger than this.
    """

    def __init__(self, batches: Pass, position: Position, length: int, dataset: IterableDataset):
        super().__init__(None)
        self._batches, self._position = batches, position
        self._length, self._dataset = length, dataset

    def __next__(self) -> Any:
        batch = next(self._batches)
        count = self._position.count
        if count > self._length:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be {self._length} "
                f"(when accessing len(dataloader)), but {count} samples have been fetched."
            )
            if len(self._position.streams) > 1:
                text += " Does the dataset split its samples over the workers, by get_worker_info()?"
            warnings.warn(text, stacklevel=2)
        return batch


class SingleProcess(Pass):
    """Loads each batch in this process, when it is taken.

    Args:
        order: see `Pass`.
        requests: what to load.
        finish: called with each batch.
    """

    def __init__(
        self, order: Sized | None, recipe: Recipe, position: Position, requests: Requests,
        finish: Callable[[Any], Any],
    ):  # fmt: skip
        super().__init__(order)
        self._position, self._requests, self._finish = position, requests, finish
        self._seeder = Seeder(position.seed, position.epoch, recipe.is_random)
        with self._seeder.isolated():
            self._fetch = make_fetcher(recipe, self._seeder, 0, position.streams[0])

    def __next__(self) -> Any:
        if self._position.is_over:
            raise StopIteration
        for number, indices in self._requests:
            try:
                with self._seeder.isolated():
                    batch = self._fetch(number, indices)
            except StreamEnded:
                break
            except StopIteration as error:  # it would look as if the pass had ended
                raise RuntimeError(f"batch {number}: the dataset raised StopIteration") from error
            self._position.advance(number, 0, self._fetch.state())
            return self._finish(batch)
        self._position.is_over = True
        raise StopIteration
