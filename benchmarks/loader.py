"""Time how fast worker processes load batches, beside PyTorch's DataLoader.

    python -m benchmarks.loader [--rounds N]

Each implementation lives in a process of its own, with workers that stay; they take turns at every load, on
the same arrays, with persistent workers and the default prefetch_factor, and without workers. A time is that
of a whole pass, of which the program reads one number a batch, through NumPy; a pass before it, which isn't
timed, compares all that the batches hold. Times are medians over the rounds during which no other program
used the processor (all of them where there is no such round). Exit code 1: the batches differ, or a worker
ended early.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Step, TurnsParser, Variant, facts_lines, measure, table_lines

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


LOADS = {
    "all": [
        *(Load("tokens", 12, 1000, workers) for workers in (0, 1, 2)),
        *(Load("images", 32, 24, workers) for workers in (1, 2)),
    ],
    "tiny": [Load("tokens", 2, 4, 0), Load("tokens", 2, 4, 1), Load("images", 2, 3, 1)],  # for the tests
}


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


WORKER = "benchmarks.workers.loader"
VARIANTS = [Variant("PyTorch", WORKER, options=("torch",)), Variant("mytorch", WORKER, options=("mytorch",))]
TOLERANCE = 1e-6


def main(argv: list[str] | None = None) -> None:
    parser = TurnsParser("loader", __doc__, 5)
    parser.add_argument("--loads", default="all", choices=LOADS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    loads, limit = LOADS[args.loads], args.other_cores
    about, table = measure("loader", args, VARIANTS, [args.loads], len(loads), REPEATS, TOLERANCE)
    print(*facts_lines([v.label for v in VARIANTS], about), "", sep="\n")
    rows = [
        (str(load), [load.samples / m.median(limit) * 1e3 for m in row], row)
        for load, row in zip(loads, table, strict=True)
    ]  # the ratio is how many times as many samples a second PyTorch's are
    print(*table_lines("samples/s", rows, 0, limit), sep="\n")


if __name__ == "__main__":
    main()
