"""Information about the worker process, for datasets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dataset import Dataset


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
    dataset: Dataset


current: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Returns which worker process the caller is in; None in the main process."""
    return current
