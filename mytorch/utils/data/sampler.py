"""
Samplers: the order in which a DataLoader loads samples.

A shuffled order is a function of a seed and the epoch, so a run that is resumed (or a process among many)
computes the order of any epoch without having drawn those before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

from ...backends.device import CPU
from ...random import Generator, generator_on

T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """An iterable of indices, or of lists of them: subclasses define `__iter__`, and `__len__` if known."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} doesn't define __iter__()")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …, len(data_source) - 1."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class ShufflingSampler(Sampler[int]):
    """Base of the samplers with a random order: each pass is one epoch, and (seed, epoch) fixes its order.

    Args:
        generator: draws the seed when it is first needed; the default generator if None.
        seed: the seed itself.

    Attributes:
        epoch: the epoch of the next pass; a pass increments it, `set_epoch` sets it.

    Raises:
        ValueError: both are given.
    """

    def __init__(self, generator: Generator | None = None, seed: int | None = None):
        if generator is not None and seed is not None:
            raise ValueError(
                f"give a generator to draw the seed from, or the seed itself, not both (seed={seed})"
            )
        self.generator, self._seed, self.epoch = generator, seed, 0

    @property
    def seed(self) -> int:
        if self._seed is None:
            self._seed = int(generator_on(CPU, self.generator).rng.integers(2**63))
        return self._seed

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass: for resuming, and to agree with other processes."""
        self.epoch = epoch

    def state_dict(self) -> dict:
        """The seed, and the epoch of the next pass."""
        return {"seed": self.seed, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict) -> None:
        """Continues from a `state_dict`."""
        self._seed, self.epoch = state_dict["seed"], state_dict["epoch"]

    def _draw(self, rng: np.random.Generator) -> Iterator[int]:
        """The indices of one pass."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define _draw()")

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        return self._draw(rng)


class RandomSampler(ShufflingSampler):
    """The indices of `data_source` in random order, or drawn with replacement.

    Args:
        replacement: draw each index from all of them.
        num_samples: how many a pass has; by default as many as there are. More of them go round again.
        generator, seed: see `ShufflingSampler`.

    Raises:
        ValueError: `num_samples` is not positive, or the data are empty.
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None, *, seed: int | None = None,
    ):  # fmt: skip
        super().__init__(generator, seed)
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples
        _check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _draw(self, rng: np.random.Generator) -> Iterator[int]:
        size, left = len(self.data_source), self.num_samples
        while left > 0:
            order = rng.integers(size, size=min(size, left)) if self.replacement else rng.permutation(size)
            yield from order[:left].tolist()
            left -= size

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(ShufflingSampler):
    """The given indices in random order.

    Args:
        generator, seed: see `ShufflingSampler`.
    """

    def __init__(
        self, indices: Sequence[int], generator: Generator | None = None, *, seed: int | None = None
    ):
        super().__init__(generator, seed)
        self.indices = indices

    def _draw(self, rng: np.random.Generator) -> Iterator[int]:
        return (self.indices[i] for i in rng.permutation(len(self.indices)).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(ShufflingSampler):
    """Indices 0 … len(weights) - 1, drawn with probabilities in proportion to the weights.

    Args:
        weights: not negative; they need not add up to 1.
        num_samples: how many a pass has.
        replacement: if False, no index comes twice in a pass.
        generator, seed: see `ShufflingSampler`.

    Raises:
        ValueError: a negative or non-finite weight, not one dimension, no weight above 0; without
            replacement, fewer weights above 0 than samples.
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True,
        generator: Generator | None = None, *, seed: int | None = None,
    ):  # fmt: skip
        super().__init__(generator, seed)
        _check_positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        weights = np.asarray(weights, np.float64)
        if weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {weights.shape}")
        if not (np.all(weights >= 0) and 0 < weights.sum() < np.inf):
            raise ValueError("weights should be finite, not negative and not all zero")
        if not replacement and np.count_nonzero(weights) < num_samples:
            raise ValueError(
                f"can't draw {num_samples} samples without replacement from "
                f"{np.count_nonzero(weights)} weights above 0"
            )
        self.weights, self.num_samples, self.replacement = weights, num_samples, replacement

    def _draw(self, rng: np.random.Generator) -> Iterator[int]:
        p = self.weights / self.weights.sum()
        return iter(rng.choice(len(p), self.num_samples, self.replacement, p).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices from another sampler.

    Args:
        sampler: any iterable of indices.
        drop_last: leave out the last list if it is shorter.

    Raises:
        ValueError: `batch_size` is not a positive integer, or `drop_last` no bool.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        _check_positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the sampler, if it has `set_epoch`."""
        set_epoch(self.sampler, epoch)

    def state_dict(self) -> dict | None:
        """That of the sampler; None if it has none."""
        return state_of(self.sampler)

    def load_state_dict(self, state_dict: dict | None) -> None:
        """Loads a `state_dict` into the sampler."""
        load_state(self.sampler, state_dict)

    def __iter__(self) -> Iterator[list[int]]:
        return self._lists(iter(self.sampler))  # the sampler's pass begins here, not with the first list

    def _lists(self, indices: Iterator[int]) -> Iterator[list[int]]:
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


def set_epoch(part: object, epoch: int) -> None:
    """Sets the epoch of a sampler or a dataset, if it has `set_epoch`."""
    if hasattr(part, "set_epoch"):
        part.set_epoch(epoch)


def state_of(part: object) -> dict | None:
    """Returns the state of a sampler or a dataset; None if it has no `state_dict`."""
    get = getattr(part, "state_dict", None)
    return None if get is None else get()


def load_state(part: object, state: dict | None) -> None:
    """Loads what `state_of` returned.

    Raises:
        ValueError: `part` has no `load_state_dict` for it.
    """
    if state is None:
        return
    if not hasattr(part, "load_state_dict"):
        raise ValueError(f"load_state_dict(): {type(part).__name__} has no load_state_dict(), got {state}")
    part.load_state_dict(state)


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")
