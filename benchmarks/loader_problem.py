"""What the loaders load: windows of tokens, and images; the same arrays and batches in every process."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.protocol import Step

REPEATS = 3  # passes in a row that a worker does of one load; a third of them isn't timed


@dataclass(frozen=True)
class Load:
    """One dataset and how it is loaded.

    Attributes:
        kind: "tokens", windows of 1,024 int64 out of uint16; "images", 3 x 224 x 224 float32 out of uint8.
    """

    kind: str
    batch_size: int
    batches: int
    num_workers: int

    @property
    def samples(self) -> int:
        return self.batch_size * self.batches

    def __str__(self) -> str:
        sizes = {"tokens": "1024 int64", "images": "3 x 224 x 224 float32"}[self.kind]
        return f"{self.batch_size} x {sizes}, {self.num_workers} workers"


LOADS = [
    Load("tokens", 12, 1000, 0),
    Load("tokens", 12, 1000, 1),
    Load("tokens", 12, 1000, 2),
    Load("images", 32, 24, 1),
    Load("images", 32, 24, 2),
]
TINY = [Load("tokens", 2, 4, 0), Load("tokens", 2, 4, 1), Load("images", 2, 3, 1)]  # for the tests


def sample_function(kind: str) -> Callable[[int], np.ndarray]:
    """`sample(i)` makes sample i, as a dataset would of a file of tokens or of a picture."""
    rng = np.random.default_rng(5)
    if kind == "tokens":
        tokens = rng.integers(0, 50257, 1 << 20).astype(np.uint16)
        return lambda i: tokens[37 * i : 37 * i + 1024].astype(np.int64)
    images = rng.integers(0, 256, (64, 224, 224, 3)).astype(np.uint8)

    def normalized(i: int) -> np.ndarray:
        x = images[i % 64].transpose(2, 0, 1).astype(np.float32, order="C")
        x *= np.float32(1 / 255)
        return x

    return normalized


class Samples:
    """A dataset of the samples of a load, as the tensors that `to_tensor` makes."""

    is_random = False  # as PyTorch's loader, mytorch's then seeds nothing

    def __init__(self, load: Load, to_tensor: Callable[[np.ndarray], Any]):
        self.load, self.sample, self.to_tensor = load, sample_function(load.kind), to_tensor

    def __len__(self) -> int:
        return self.load.samples

    def __getitem__(self, i: int) -> Any:
        return self.to_tensor(self.sample(i))


def passes(loads: list[Load], make_loader: Callable[[Load], Iterable[Any]]) -> Iterator[Step]:
    """For every load the steps of a worker: each is one pass, and returns a figure of its batches.

    The first one, which isn't timed, returns that of all they hold; the others read a number of each batch,
    through NumPy: what an op costs doesn't count.
    """
    for load in loads:
        loader = make_loader(load)

        def check(loader: Iterable[Any] = loader) -> float:
            return float(checksum(batch.numpy() for batch in loader))

        def step(loader: Iterable[Any] = loader) -> float:
            return float(sum(float(batch.numpy().reshape(-1)[-1]) for batch in loader))

        yield from [check, *[step] * (REPEATS - 1)]


def checksum(arrays: Iterable[np.ndarray]) -> int:
    """A number of 32 bits that depends on every byte of the arrays, on their dtypes, shapes and order."""
    value = 0
    for x in arrays:
        value = zlib.crc32(f"{x.dtype} {x.shape}".encode(), value)
        value = zlib.crc32(np.ascontiguousarray(x).data.cast("B"), value)
    return value
