"""
Worlds: any number of ranks as threads of one process, of which one runs at a time.

    def train():
        dist.init_process_group()
        x = mytorch.full((2,), float(dist.get_rank()))
        dist.all_reduce(x)
        return x

    worlds.run(4, train)          # four results; the same function runs under mytorchrun, and alone

A rank runs until it waits in a collective for others; then the next one does. So what it prints comes in an
order that is always the same, a debugger stops in one rank, and ranks that all wait for each other are an
error that says what each of them waits for. What belongs to a process elsewhere, as the default group, random
numbers, the default dtype and RANK in the environment, each rank has for itself: it is put in place when the
rank takes its turn, as an operating system does with registers.
"""

from __future__ import annotations

import os
import random as python_random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .. import random
from ..backends import door, dtypes
from ..nn.functional.variant import use_fused
from . import world as groups
from .errors import DistError
from .turns import World, current

T = TypeVar("T")
_OF_A_RANK: list[tuple[object, str, Callable[[], Any]]] = []
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def of_each_rank(holder: object, name: str, initial: Callable[[], Any] | None = None) -> None:
    """Makes an attribute of a module or class belong to each rank of a world.

    Args:
        initial: returns what it is when a rank begins; by default what it is where `run` is called.
    """
    _OF_A_RANK.append((holder, name, initial or (lambda: getattr(holder, name))))


of_each_rank(groups.GroupMember, "WORLD", lambda: None)
of_each_rank(door.processes, "group", lambda: None)
of_each_rank(groups, "_groups", list)
of_each_rank(groups, "_group_count", int)
of_each_rank(random, "_default", dict)
of_each_rank(random, "_seed")
of_each_rank(dtypes, "_default")
of_each_rank(use_fused, "default")


class _Registers:
    """What belongs to one rank, while another one runs."""

    def __init__(self, rank: int, size: int):
        self._attributes = [(holder, name, initial()) for holder, name, initial in _OF_A_RANK]
        self._environment: dict[str, str | None] = dict(
            zip(_ENVIRONMENT, map(str, (rank, size, rank, size)), strict=True)
        )
        self._states = python_random.getstate(), np.random.get_state()

    def swap(self) -> None:
        """Puts it in place, and keeps what was there."""
        before = [(holder, name, getattr(holder, name)) for holder, name, _ in self._attributes]
        for attribute in self._attributes:
            setattr(*attribute)
        self._attributes = before
        for name, value in self._environment.items():
            self._environment[name] = os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        states, self._states = self._states, (python_random.getstate(), np.random.get_state())
        python_random.setstate(states[0]), np.random.set_state(states[1])


def run(size: int, function: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
    """Returns what `function(*args, **kwargs)` returns on each of `size` ranks, which are threads.

    They share the memory of the process: arguments are the same objects on all ranks, and a rank must make
    what it trains by itself, with a seed. The function calls `init_process_group()`, as it does in processes.

    Raises:
        The first error of a rank; the others then end where they next wait.
        DistError: all ranks that are left wait for each other.
        ValueError: `size` isn't a positive int.

    >>> from mytorch import distributed as dist
    >>> def sum_of_ranks():
    ...     dist.init_process_group()
    ...     x = mytorch.tensor([float(dist.get_rank())])
    ...     dist.all_reduce(x)
    ...     return x.item()
    >>> dist.worlds.run(3, sum_of_ranks)
    [3.0, 3.0, 3.0]
    """
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"worlds.run(): expected a positive number of ranks, got {size!r}")
    if current() is not None:
        raise DistError("worlds.run(): a rank of a world can't begin another one")
    world = World([_Registers(rank, size) for rank in range(size)])
    call = lambda: function(*args, **kwargs)  # noqa: E731
    threads = [
        threading.Thread(target=world.main, args=(rank, call), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    world.begin()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        world.stop()
        for thread in threads:
            thread.join()
        raise
    if world.error is not None:
        raise world.error
    return world.results
