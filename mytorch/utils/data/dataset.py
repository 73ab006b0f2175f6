"""Datasets: `dataset[i]` is sample i, `len(dataset)` their number; lists are datasets as well."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...ops.random import randperm

if TYPE_CHECKING:
    import numpy as np

    from ...core.array import Array
    from ...core.tensor import Tensor
    from ...random import Generator

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Base class of map-style datasets: subclasses define `__getitem__` and `__len__`.

    A subclass that loads several samples faster at once can also define `__getitems__(indices) -> list`.

    Attributes:
        is_random: False if loading draws no random numbers: then nothing is seeded before a sample. A
            subclass that overrides `__getitem__` or `__getitems__` must set it again.
    """

    is_random = True

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        defined = vars(cls)
        if "is_random" not in defined and ("__getitem__" in defined or "__getitems__" in defined):
            cls.is_random = True

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError(f"{type(self).__name__} doesn't define __getitem__()")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Base class of datasets without indices: subclasses define `__iter__`."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} doesn't define __iter__()")

    def __add__(self, other: Dataset) -> ChainDataset:
        return ChainDataset([self, other])


@dataclass(frozen=True)
class WorkerInfo:
    """Information about a worker process.

    Attributes:
        id: 0 … num_workers - 1.
        seed: different in every worker; the default generators are seeded for each sample anyway.
        dataset: the copy of this process; of a wrapper with `__wrapped__`, the wrapped dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Dataset


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Returns the information about the calling worker process; None in the main process."""
    return _worker_info


def set_worker_info(info: WorkerInfo) -> None:
    """Sets the result of `get_worker_info`."""
    global _worker_info
    _worker_info = info


class TensorDataset(Dataset[tuple]):
    """A dataset of tensors: sample i is the tuple of their i-th entries.

    Raises:
        AssertionError: the tensors have different lengths.

    >>> mytorch.utils.data.TensorDataset(mytorch.arange(3), mytorch.ones(3))[1]
    (tensor(1), tensor(1.00000))
    """

    is_random = False

    def __init__(self, *tensors: Tensor | Array | np.ndarray):
        lengths = [len(tensor) for tensor in tensors]
        if not lengths or set(lengths) != {lengths[0]}:
            raise AssertionError(f"Size mismatch between tensors: they have lengths {lengths}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])


class ConcatDataset(Dataset[T]):
    """The concatenation of several map-style datasets.

    Raises:
        AssertionError: `datasets` is empty, or contains an IterableDataset.
    """

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T:
        position = index + len(self) if index < 0 else index
        if position < 0:
            raise ValueError(f"index {index} is out of range for {len(self)} samples")
        if position >= len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        i = bisect_right(self.cumulative_sizes, position)
        return self.datasets[i][position - (self.cumulative_sizes[i - 1] if i else 0)]


class ChainDataset(IterableDataset[T]):
    """The concatenation of several iterable datasets.

    Raises:
        AssertionError: one of `datasets` is not an IterableDataset.
    """

    def __init__(self, datasets: Iterable[IterableDataset]):
        self.datasets = list(datasets)
        if not all(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ChainDataset only supports IterableDataset")

    def __iter__(self) -> Iterator[T]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class StackDataset(Dataset[T]):
    """A dataset of tuples or dicts: sample i contains sample i of each of several datasets.

        StackDataset(images, labels)[i]                 (images[i], labels[i])
        StackDataset(image=images, label=labels)[i]     {"image": images[i], "label": labels[i]}

    Raises:
        ValueError: no datasets, both positional and keyword arguments, or different lengths.
    """

    def __init__(self, *args: Dataset, **kwargs: Dataset):
        if bool(args) == bool(kwargs):
            found = "both" if args else "neither"
            raise ValueError(f"StackDataset takes datasets by position or by name, at least one; got {found}")
        self.datasets: tuple[Dataset, ...] | dict[str, Dataset] = args or kwargs
        lengths = [len(dataset) for dataset in self._list]
        if set(lengths) != {lengths[0]}:
            raise ValueError(f"Size mismatch between datasets: they have lengths {lengths}")

    @property
    def _list(self) -> list[Dataset]:
        """The datasets without their names."""
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _named(self, values: Iterable[object]) -> Any:
        values = tuple(values)
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else values

    def __getitem__(self, index: Any) -> T:
        return self._named(dataset[index] for dataset in self._list)

    def __getitems__(self, indices: list) -> list[T]:
        columns = [load_many(dataset, indices) for dataset in self._list]
        return [self._named(values) for values in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return len(self._list[0])


class Subset(Dataset[T]):
    """The samples `dataset[i]` for i in `indices`.

    >>> list(mytorch.utils.data.Subset("abcd", [0, 2]))
    ['a', 'c']
    """

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list) -> list[T]:
        if loads_many(self):
            return load_many(self.dataset, [self.indices[i] for i in indices])
        return [self[i] for i in indices]

    def __len__(self) -> int:
        return len(self.indices)


def loads_many(dataset: object) -> bool:
    """Returns whether a dataset, or a dataset that it wraps, defines `__getitems__`."""
    if isinstance(dataset, Subset) and type(dataset).__getitems__ is Subset.__getitems__:
        return type(dataset).__getitem__ is Subset.__getitem__ and loads_many(dataset.dataset)
    if type(dataset) is StackDataset:
        return any(map(loads_many, dataset._list))
    return callable(getattr(dataset, "__getitems__", None))


def load_many(dataset: object, indices: list) -> list:
    """Returns the samples of these indices, by one call of `__getitems__` if the dataset defines it.

    Raises:
        ValueError: `__getitems__` returned another number of samples.
    """
    if not loads_many(dataset):
        return [dataset[i] for i in indices]
    samples = dataset.__getitems__(indices)
    if len(samples) != len(indices):
        raise ValueError(
            f"Nested dataset's output size mismatch: {type(dataset).__name__}.__getitems__() was asked for "
            f"{len(indices)} samples, it returned {len(samples)}"
        )
    return samples


def random_split(
    dataset: Dataset[T], lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset[T]]:
    """Splits a dataset at random into subsets without overlap.

    Args:
        lengths: number of samples of each; or fractions that sum to 1, rounded down (the remaining samples
            are distributed one by one).
        generator: the default generator if None.

    Raises:
        ValueError: the lengths don't sum to the number of samples, or a fraction is not in [0, 1].

    >>> [len(part) for part in mytorch.utils.data.random_split(range(10), [8, 2])]
    [8, 2]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _lengths(len(dataset), lengths)
    if sum(lengths) != len(dataset):
        raise ValueError(
            "Sum of input lengths does not equal the length of the input dataset: "
            f"{' + '.join(map(str, lengths))} = {sum(lengths)}, not {len(dataset)}"
        )
    order = randperm(len(dataset), generator=generator).tolist()
    return [
        Subset(dataset, order[end - n : end]) for n, end in zip(lengths, accumulate(lengths), strict=True)
    ]


def _lengths(total: int, fractions: Sequence[float]) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1: {fraction}")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            warnings.warn(f"Length of split at index {i} is 0. The subset is empty.", stacklevel=3)
    return lengths
