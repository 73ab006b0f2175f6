"""One pass over a dataset: the iterator that a DataLoader returns, and its position."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from typing import Any

from ...core.grad_mode import _state
from ..reading import is_count
from .dataset import IterableDataset
from .fetch import Recipe, StreamEnded
from .pin import pin_batch
from .seeding import Seeder

_VERSION = 1
ENDED = {"ended": True, "samples": 0, "dataset": None}  # state of a stream without more samples
Requests = Iterator[tuple[int, object]]  # numbers of batches and their indices


@dataclass
class Position:
    """A position in a pass; batches count once they are returned, not when they are loaded ahead.

    Attributes:
        seed: seed of the random numbers of the samples.
        sampler: state of the sampler at the beginning of the pass.
        batches: the batches 0 … batches - 1 were returned.
        ahead: numbers of further returned batches, with `in_order=False`.
        streams: state of each worker's stream, for an IterableDataset.
        turn: id of the worker of the next batch.
        first: number of the first batch of a stream that isn't discarded.
        sampler_epoch: the epoch of the sampler when the position was made or loaded.
        is_over: the pass has ended.
    """

    seed: int
    epoch: int
    sampler: dict | None
    streams: list[dict | None]
    batches: int = 0
    ahead: list[int] = field(default_factory=list)
    turn: int = 0
    first: int = 0
    sampler_epoch: int | None = None
    is_over: bool = False

    def advance(self, number: int, worker: int, stream: dict | None) -> None:
        """Records that batch `number` of `worker` was returned, and the state of that worker's stream."""
        self.ahead.append(number)
        while self.batches in self.ahead:
            self.ahead.remove(self.batches)
            self.batches += 1
        self.streams[worker] = stream
        self.turn = (worker + 1) % len(self.streams)

    def skip(self, num_batches: int, is_stream: bool) -> None:
        """Skips the batches 0 … num_batches - 1; those of a stream are loaded, and discarded by the pass."""
        if is_stream:
            self.first = num_batches
            return
        self.batches = max(self.batches, num_batches)
        self.ahead = [number for number in self.ahead if number >= self.batches]

    @property
    def count(self) -> int:
        """The number of batches that were returned."""
        return self.batches + len(self.ahead)


def to_dict(position: Position, sizes: dict[str, object]) -> dict:
    """Returns a position as numbers, lists and dicts; `from_dict` checks that `sizes` are the same."""
    streams = position.streams if any(state is not None for state in position.streams) else None
    return {
        "version": _VERSION, **sizes, "seed": position.seed, "epoch": position.epoch,
        "sampler": position.sampler, "batches": position.batches, "ahead": list(position.ahead),
        "streams": streams and list(streams), "turn": position.turn,
    }


def from_dict(state: dict, sizes: dict[str, object], num_streams: int) -> Position:
    """Returns the position that `to_dict` saved.

    Raises:
        ValueError: `state` is not from `to_dict`, or from a loader with other sizes.
    """
    missing = {"version", "seed", "epoch", "sampler", "batches", "ahead", "streams", "turn"} - state.keys()
    if missing or state["version"] != _VERSION:
        raise ValueError(
            f"load_state_dict(): expected the state of a DataLoader, got the keys {sorted(state)}"
        )
    for name in ("epoch", "batches", "turn"):
        if not is_count(state[name]):
            raise ValueError(f"load_state_dict(): {name} must be an int of at least 0, got {state[name]!r}")
    for name, value in sizes.items():
        if state.get(name) != value:
            raise ValueError(
                f"load_state_dict(): the state is of a loader with {name}={state.get(name)}, "
                f"this one has {name}={value}"
            )
    streams = list(state["streams"] or [None] * num_streams)
    if len(streams) != num_streams:
        raise ValueError(
            f"load_state_dict(): an IterableDataset needs as many workers as before; the state is of "
            f"{len(streams)} streams, this loader has {num_streams}"
        )
    return Position(
        state["seed"], state["epoch"], state["sampler"], streams, state["batches"], list(state["ahead"]),
        state["turn"],
    )


class Pass(Iterator[Any]):
    """The iterator over the batches of one pass.

    Args:
        order: the sampler or batch sampler; None for a stream, which has an unknown number of batches.
        position: counts the batches that `next` returns.
    """

    def __init__(self, order: Sized | None, position: Position):
        self._order, self.position = order, position
        self._ahead: tuple | Exception | None = None  # what `peek` has found

    def take(self) -> tuple[Any, int, int, dict | None] | None:
        """Returns the next batch and the arguments of `Position.advance`; None at the end."""
        raise NotImplementedError

    def peek(self) -> Any:
        """Returns the next batch, which counts once `next` returns it, too.

        Raises:
            StopIteration: the pass is over after the current batch.
            Exception: the batch can't be loaded; `next` raises the same.
        """
        if self._ahead is None:
            try:
                self._ahead = self.take() or _END
            except Exception as error:
                self._ahead = error
        if isinstance(self._ahead, Exception):
            raise self._ahead
        if self._ahead is _END:
            raise StopIteration
        return self._ahead[0]

    def load(self) -> Any:
        """Returns the next batch.

        Raises:
            StopIteration: the pass is over.
        """
        while True:
            ahead, self._ahead = self._ahead, None
            if isinstance(ahead, Exception):
                raise ahead
            taken = _END if self.position.is_over else ahead or self.take() or _END
            if taken is _END:
                self.position.is_over = True
                raise StopIteration
            batch, *place = taken
            self.position.advance(*place)
            if self.position.count > self.position.first:
                return batch

    def __next__(self) -> Any:
        return self.load() if (stream := _state.stream) is None else stream.load(self.load)

    def __len__(self) -> int:
        """Returns the number of batches of a whole pass.

        Raises:
            TypeError: the dataset is an IterableDataset, or the sampler has no length.
        """
        if self._order is None:
            raise TypeError("a pass over an IterableDataset has no len(): its number of batches is unknown")
        return len(self._order)

    def is_last(self) -> bool:
        """Returns whether no batch follows the last one; where the number is unknown, one is loaded ahead."""
        try:
            return self.position.count >= len(self)
        except TypeError:
            pass
        try:
            self.peek()
        except StopIteration:
            return True
        except Exception:  # `next` raises it
            return False
        return False


_END = (None,)  # taken after the last batch


class Counted(Pass):
    """A pass over a stream that warns if it has more batches than `len(loader)` reported.

    Args:
        length: the length of the dataset, an upper bound of the number of batches.
    """

    def __init__(self, batches: Pass, length: int, dataset: IterableDataset):
        super().__init__(None, batches.position)
        self._batches, self._length, self._dataset = batches, length, dataset

    def load(self) -> Any:
        batch = self._batches.load()
        count = self.position.count
        if count > self._length:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be {self._length} "
                f"(when accessing len(dataloader)), but {count} samples have been fetched."
            )
            if len(self.position.streams) > 1:
                text += " Does the dataset split its samples over the workers, by get_worker_info()?"
            warnings.warn(text, stacklevel=2)
        return batch

    def peek(self) -> Any:
        return self._batches.peek()


class SingleProcess(Pass):
    """A pass without workers: each batch is loaded in this process by `next`.

    Args:
        order, position: see `Pass`.
        is_pinned: copy batches to page-locked memory.
    """

    def __init__(
        self, order: Sized | None, recipe: Recipe, position: Position, requests: Requests, is_pinned: bool
    ):
        super().__init__(order, position)
        self._requests, self._is_pinned = requests, is_pinned
        self._seeder = Seeder(position.seed, position.epoch, recipe.is_random)
        with self._seeder.isolated():
            self._fetch = recipe.fetcher(self._seeder, 0, position.streams[0])

    def take(self) -> tuple[Any, int, int, dict | None] | None:
        for number, indices in self._requests:
            try:
                with self._seeder.isolated():
                    batch = self._fetch(number, indices)
            except StreamEnded:
                break
            except StopIteration as error:  # would end the caller's loop
                raise RuntimeError(f"batch {number}: the dataset raised StopIteration") from error
            state = self._fetch.state()
            return pin_batch(batch) if self._is_pinned else batch, number, 0, state
        return None
