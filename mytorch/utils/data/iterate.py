"""One pass over the data in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .fetch import Recipe, StreamEnded, make_fetcher
from .seeding import Seeder
from .state import Position

Requests = Iterator[tuple[int, Any]]  # numbers of batches and their indices


class Counted:
    """A pass over a stream that warns when there is more than was told by `len(loader)`.

    Args:
        length: samples that the dataset said it has. With several workers, or `drop_last`, nobody knows the
            number of batches; it can't be larger than this.
    """

    def __init__(self, batches: Iterator[Any], position: Position, length: int, dataset: Any):
        self._batches, self._position = batches, position
        self._length, self._dataset = length, dataset

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        count = self._position.count
        if count > self._length:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be {self._length} "
                f"(when accessing len(dataloader)), but {count} samples have been fetched."
            )
            if len(self._position.streams) > 1:
                text += " Does the dataset give each worker its share, by get_worker_info()?"
            warnings.warn(text, stacklevel=2)
        return batch


class SingleProcess:
    """Loads a batch when it is asked for.

    Args:
        requests: what to load.
        finish: called with each batch, before it is given out.
    """

    def __init__(self, recipe: Recipe, position: Position, requests: Requests, finish: Callable[[Any], Any]):
        self._position, self._requests, self._finish = position, requests, finish
        self._seeder = Seeder(position.seed, position.epoch, recipe.draws_nothing())
        with self._seeder.apart():
            self._fetch = make_fetcher(recipe, self._seeder, 0, position.streams[0])

    def __iter__(self) -> SingleProcess:
        return self

    def __next__(self) -> Any:
        if self._position.is_over:
            raise StopIteration
        for number, indices in self._requests:
            try:
                with self._seeder.apart():
                    batch = self._fetch(number, indices)
            except StreamEnded:
                break
            except StopIteration as error:  # it would look as if the pass had ended
                raise RuntimeError(f"batch {number}: the dataset raised StopIteration") from error
            self._position.advance(number, 0, self._fetch.state())
            return self._finish(batch)
        self._position.is_over = True
        raise StopIteration
