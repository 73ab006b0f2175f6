"""One pass over the data in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .fetch import Recipe, StreamEnded, make_fetcher
from .seeding import Seeder
from .state import Position

Requests = Iterator[tuple[int, Any]]  # numbers of batches and their indices


class Pass(Iterator[Any]):
    """The batches of one pass, one after the other.

    Args:
        order: what gives the indices; of a stream, which has none, nobody knows the number of batches.
    """

    def __init__(self, order: Any):
        self._order = order

    def __len__(self) -> int:
        """How many batches a whole pass has.

        Raises:
            TypeError: it goes over an IterableDataset, or its sampler has no length.
        """
        if self._order is None:
            raise TypeError("a pass over an IterableDataset has no len(): how many batches come isn't known")
        return len(self._order)


class Counted(Pass):
    """A pass over a stream that warns when there is more than was told by `len(loader)`.

    Args:
        length: samples that the dataset said it has. With several workers, or `drop_last`, nobody knows the
            number of batches; it can't be larger than this.
    """

    def __init__(self, batches: Iterator[Any], position: Position, length: int, dataset: Any):
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
                text += " Does the dataset give each worker its share, by get_worker_info()?"
            warnings.warn(text, stacklevel=2)
        return batch


class SingleProcess(Pass):
    """Loads a batch when it is asked for.

    Args:
        order: see `Pass`.
        requests: what to load.
        finish: called with each batch, before it is given out.
    """

    def __init__(
        self, order: Any, recipe: Recipe, position: Position, requests: Requests, finish: Callable[[Any], Any]
    ):  # fmt: skip
        super().__init__(order)
        self._position, self._requests, self._finish = position, requests, finish
        self._seeder = Seeder(position.seed, position.epoch)
        with self._seeder:
            self._fetch = make_fetcher(recipe, self._seeder, 0, position.streams[0])

    def __next__(self) -> Any:
        if self._position.is_over:
            raise StopIteration
        for number, indices in self._requests:
            try:
                with self._seeder:
                    batch = self._fetch(number, indices)
            except StreamEnded:
                break
            except StopIteration as error:  # it would look as if the pass had ended
                raise RuntimeError(f"batch {number}: the dataset raised StopIteration") from error
            self._position.advance(number, 0, self._fetch.state())
            return self._finish(batch)
        self._position.is_over = True
        raise StopIteration
