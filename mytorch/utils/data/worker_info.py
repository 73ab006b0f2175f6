"""What a dataset can find out about the worker that it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this is.

    Attributes:
        id: 0 … num_workers - 1.
        seed: a different one in every worker; what datasets draw is seeded for each sample anyway.
        dataset: this process's copy; what is in it, if it is a wrapper with `__wrapped__`.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


current: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What a dataset can ask to find out which worker process it is in: None in the main process."""
    return current
