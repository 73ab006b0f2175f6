"""DistributedSampler: each of several processes loads its share of the data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sized

import numpy as np

from .sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index of one order that all processes compute, from the `rank`-th on.

    The order is a function of (seed, epoch): call `set_epoch` before each pass, or it is always the same. So
    that all processes have as many indices, the first ones of the order come again at its end, or with
    `drop_last` the last ones are left out.

    Args:
        num_replicas, rank: by default WORLD_SIZE and RANK of the environment, as launchers set them.
        shuffle: a random order, else 0, 1, 2, …
        seed: the same in all processes.

    Raises:
        RuntimeError: `num_replicas` or `rank` is not given, and isn't in the environment.
        ValueError: `rank` is not in 0 … num_replicas - 1.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
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
        """The number of indices of each process."""
        if self.drop_last:
            return len(self.dataset) // self.num_replicas
        return math.ceil(len(self.dataset) / self.num_replicas)

    @property
    def total_size(self) -> int:
        """The number of indices of all processes together."""
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, and of all after it."""
        self.epoch = epoch

    def state_dict(self) -> dict:
        """What fixes the order: seed, epoch and the number of processes."""
        return {"seed": self.seed, "epoch": self.epoch, "num_replicas": self.num_replicas}

    def load_state_dict(self, state_dict: dict) -> None:
        """Continues from a `state_dict`, also of another rank.

        Raises:
            ValueError: there were more or fewer processes.
        """
        if state_dict["num_replicas"] != self.num_replicas:
            raise ValueError(
                f"load_state_dict(): the state is of {state_dict['num_replicas']} processes, "
                f"there are {self.num_replicas} now"
            )
        self.seed, self.epoch = state_dict["seed"], state_dict["epoch"]

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        mine = np.arange(self.rank, self.total_size, self.num_replicas) % max(size, 1)
        if self.shuffle:
            mine = np.random.default_rng([self.seed, self.epoch]).permutation(size)[mine]
        return iter(mine.tolist())

    def __len__(self) -> int:
        return self.num_samples


def _from_environment(name: str, variable: str) -> int:
    value = os.environ.get(variable, "")
    if not value.isdecimal():
        raise RuntimeError(
            f"DistributedSampler: {name} is not given, and the environment has no {variable}, "
            "which a launcher of several processes sets"
        )
    return int(value)
