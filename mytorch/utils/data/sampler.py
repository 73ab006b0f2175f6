"""
Samplers: the order in which a DataLoader loads samples.

A random order is a function of the seed and the epoch: a resumed run and every process of a job compute the
order of any epoch directly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

from ...backends.device import CPU
from ...random import Generator, generator_on
from ..reading import is_count

T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """Base class of iterables of indices, or lists of indices: subclasses define `__iter__` and `__len__`."""

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
    """Base class of samplers with a random order, which is a function of (seed, epoch).

    Args:
        generator: generator of the seed; the default generator if None.

    Attributes:
        epoch: the epoch of the next pass; incremented by each pass.
    """

    def __init__(self, generator: Generator | None = None):
        self.generator, self._seed, self.epoch = generator, None, 0

    @property
    def seed(self) -> int:
        """The seed, drawn at its first use."""
        if self._seed is None:
            self._seed = int(generator_on(CPU, self.generator).rng.integers(2**63))
        return self._seed

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass."""
        self.epoch = epoch

    def state_dict(self) -> dict:
        """Returns the seed and the epoch of the next pass."""
        return {"seed": self.seed, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a `state_dict`."""
        self._seed, self.epoch = _checked(state_dict, "seed"), _checked(state_dict, "epoch")

    def _draw(self, rng: np.random.Generator) -> Iterator[int]:
        """Returns the indices of one pass."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define _draw()")

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        return self._draw(rng)


class RandomSampler(ShufflingSampler):
    """The indices of `data_source` in random order, or drawn with replacement.

    Args:
        replacement: draw with replacement.
        num_samples: number of indices in a pass; `len(data_source)` by default. A larger number repeats
            the indices, in a new random order.
        generator: see `ShufflingSampler`.

    Raises:
        ValueError: `num_samples` is not positive, or `data_source` is empty.
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        super().__init__(generator)
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
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        super().__init__(generator)
        self.indices = indices

    def _draw(self, rng: np.random.Generator) -> Iterator[int]:
        return (self.indices[i] for i in rng.permutation(len(self.indices)).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(ShufflingSampler):
    """Indices 0 … len(weights) - 1, drawn with probabilities proportional to the weights.

    Args:
        weights: not negative; they need not sum to 1.
        num_samples: number of indices in a pass.
        replacement: draw with replacement.
        generator: see `ShufflingSampler`.

    Raises:
        ValueError: `weights` is not one-dimensional, has a negative or non-finite entry, or no positive one;
            without replacement, fewer positive weights than samples.
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True,
        generator: Generator | None = None,
    ):
        super().__init__(generator)
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


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, starting at `rank`, of an order that is the same in all processes.

    The order is a function of (seed, epoch): without `set_epoch` before each pass it is always the same. All
    processes get the same number of indices: the first ones are repeated at the end, or with `drop_last` the
    last ones are dropped.

    Args:
        num_replicas, rank: by default the environment variables WORLD_SIZE and RANK.
        shuffle: random order, else 0, 1, 2, …
        seed: must be the same in all processes.

    Raises:
        RuntimeError: `num_replicas` or `rank` is neither given nor in the environment.
        ValueError: `rank` is not in 0 … num_replicas - 1.
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ):
        if num_replicas is None:
            num_replicas = _from_environment("num_replicas", "WORLD_SIZE")
        if rank is None:
            rank = _from_environment("rank", "RANK")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0

    @property
    def num_samples(self) -> int:
        """Number of indices of each process."""
        if self.drop_last:
            return len(self.dataset) // self.num_replicas
        return math.ceil(len(self.dataset) / self.num_replicas)

    @property
    def total_size(self) -> int:
        """Number of indices of all processes."""
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the following passes."""
        self.epoch = epoch

    def state_dict(self) -> dict:
        """Returns the seed, the epoch and the number of processes."""
        return {"seed": self.seed, "epoch": self.epoch, "num_replicas": self.num_replicas}

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a `state_dict` of any rank.

        Raises:
            ValueError: the number of processes was different.
        """
        if state_dict["num_replicas"] != self.num_replicas:
            raise ValueError(
                f"load_state_dict(): the state is of {state_dict['num_replicas']} processes, "
                f"expected {self.num_replicas}"
            )
        self.seed, self.epoch = _checked(state_dict, "seed"), _checked(state_dict, "epoch")

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        indices = np.arange(self.rank, self.total_size, self.num_replicas) % max(size, 1)
        if self.shuffle:
            indices = np.random.default_rng([self.seed, self.epoch]).permutation(size)[indices]
        return iter(indices.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices from another sampler.

    Args:
        sampler: any iterable of indices.
        drop_last: drop the last list if it is shorter.

    Raises:
        ValueError: `batch_size` is not a positive integer, or `drop_last` not a bool.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        _check_positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the sampler, if it defines `set_epoch`."""
        set_epoch(self.sampler, epoch)

    def state_dict(self) -> dict | None:
        """Returns the state of the sampler; None if it has no `state_dict`."""
        return state_of(self.sampler)

    def load_state_dict(self, state_dict: dict | None) -> None:
        """Loads a `state_dict` into the sampler."""
        load_state(self.sampler, state_dict)

    def __iter__(self) -> Iterator[list[int]]:
        return self._lists(iter(self.sampler))  # begins the sampler's pass now, not at the first `next`

    def _lists(self, indices: Iterator[int]) -> Iterator[list[int]]:
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


def set_epoch(part: object, epoch: int) -> None:
    """Sets the epoch of a sampler or a dataset, if it defines `set_epoch`."""
    if hasattr(part, "set_epoch"):
        part.set_epoch(epoch)


def state_of(part: object) -> dict | None:
    """Returns the state of a sampler or a dataset; None if it has no `state_dict`."""
    get = getattr(part, "state_dict", None)
    return None if get is None else get()


def load_state(part: object, state: dict | None) -> None:
    """Loads a state returned by `state_of`.

    Raises:
        ValueError: `part` has no `load_state_dict`.
    """
    if state is None:
        return
    if not hasattr(part, "load_state_dict"):
        raise ValueError(f"load_state_dict(): {type(part).__name__} has no load_state_dict(), got {state}")
    part.load_state_dict(state)


def _checked(state: dict, name: str) -> int:
    if not is_count(state[name]):
        raise ValueError(f"load_state_dict(): {name} must be an int of at least 0, got {state[name]!r}")
    return state[name]


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def _from_environment(name: str, variable: str) -> int:
    value = os.environ.get(variable, "")
    if not value.isdecimal():
        raise RuntimeError(
            f"DistributedSampler: {name} is neither given nor in the environment as {variable}, "
            "which launchers set"
        )
    return int(value)
