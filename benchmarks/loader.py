"""Time how fast worker processes load batches, beside PyTorch's DataLoader.

    python -m benchmarks.loader [--rounds N] [--out FILE]

A time is that of a pass over the same arrays, of which the program reads one number a batch, through NumPy; a
pass before, which isn't timed, compares all that the batches hold. Workers are persistent.
"""

import zlib
from collections.abc import Callable
from functools import partial, reduce
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import MYTORCH, TORCH, Plan, Task, by_job, measure, parser, show

SIZES = {"tokens": "1024", "images": "3 × 224 × 224"}


class Load(NamedTuple):
    """A dataset, windows of tokens or images, and how it is loaded."""

    kind: str
    batch_size: int
    batches: int
    num_workers: int

    @property
    def name(self) -> tuple[str, str]:
        size = f"{self.batches} × {self.batch_size} × {SIZES[self.kind]}"
        return f"{self.kind}, {self.num_workers} workers", size


LOADS = {
    "all": [
        *(Load("tokens", 12, 1000, workers) for workers in (0, 1, 2)),
        *(Load("images", 32, 24, workers) for workers in (1, 2)),
    ],
    "tiny": [Load("tokens", 2, 4, 0), Load("tokens", 2, 4, 1), Load("images", 2, 3, 1)],  # for the tests
}


class Samples:
    """A dataset of int64 windows out of uint16, or of float32 images out of uint8."""

    is_random = False  # as PyTorch's loader, mytorch's then seeds nothing

    def __init__(self, load: Load, to_tensor: Callable[[np.ndarray], Any]):
        rng = np.random.default_rng(5)
        self.load, self.to_tensor = load, to_tensor
        self.tokens = rng.integers(0, 50257, 1 << 20).astype(np.uint16)
        self.images = rng.integers(0, 256, (64, 224, 224, 3)).astype(np.uint8)

    def __len__(self) -> int:
        return self.load.batch_size * self.load.batches

    def __getitem__(self, i: int) -> Any:
        if self.load.kind == "tokens":
            return self.to_tensor(self.tokens[37 * i : 37 * i + 1024].astype(np.int64))
        x = self.images[i % 64].transpose(2, 0, 1).astype(np.float32, order="C")
        x *= np.float32(1 / 255)
        return self.to_tensor(x)


def loading(library: Any, load: Load) -> Task:
    """Returns passes through the dataset, and a checksum of all that the batches hold."""
    loader = import_module(f"{library.__name__}.utils.data").DataLoader(
        Samples(load, library.from_numpy), load.batch_size, num_workers=load.num_workers,
        persistent_workers=load.num_workers > 0,
    )
    return Task(
        step=lambda: sum(float(batch.numpy().reshape(-1)[-1]) for batch in loader),
        check=lambda: float(reduce(lambda value, batch: zlib.crc32(batch.numpy(), value), loader, 0)),
    )


def jobs(library: Any, loads: str) -> list[Callable[[], Task]]:
    return [partial(loading, library, load) for load in LOADS[loads]]


def main(argv: list[str] | None = None) -> None:
    options = parser("loader", __doc__, 5)
    options.add_argument("--loads", default="all", choices=LOADS)
    args = options.parse_args(argv)
    plan = Plan("loader", steps=2, warm_up=0, tolerance=0.0)
    result = measure(plan, [TORCH, MYTORCH], [args.loads], [load.name for load in LOADS[args.loads]], args)
    show("Passes, ms", result, by_job(result), args)


if __name__ == "__main__":
    main()
