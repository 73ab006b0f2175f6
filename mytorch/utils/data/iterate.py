"""One pass over the data in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .fetch import Recipe, StreamEnded, make_fetcher
from .seeding import Seeder
from .state import Position

Requests = Iterator[tuple[int, Any]]  # numbers of batches and their indices


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
