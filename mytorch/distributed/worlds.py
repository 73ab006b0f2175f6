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
numbers, the default dtype, the environment with RANK in it, warning filters and sys.stdout, each rank has for
itself: it is put in place when the rank takes its turn, as an operating system does with registers.
"""

from __future__ import annotations

import os
import random as python_random
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .. import random
from ..backends import door, dtypes
from ..core import grad_mode, printing
from ..nn.functional.variant import use_fused
from ..nn.utils import parametrize
from . import world as groups
from .errors import DistError
from .turns import World, current

__all__ = ["of_each_rank", "run"]

T = TypeVar("T")
_OF_A_RANK: list[tuple[object, str, Callable[[], Any]]] = []
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_running = threading.Lock()  # held while there is a world: what it swaps is the process's


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
of_each_rank(parametrize, "_cache", lambda: None)
of_each_rank(parametrize, "_depth", int)
of_each_rank(printing, "_options", lambda: {**printing._options})
of_each_rank(printing, "_sci_mode")
of_each_rank(grad_mode._State, "stream")
of_each_rank(sys, "stdout")
of_each_rank(sys, "stderr")
of_each_rank(warnings, "filters", lambda: [*warnings.filters])
of_each_rank(warnings, "showwarning")
of_each_rank(warnings, "_showwarnmsg_impl")


class _Registers:
    """What belongs to one rank, while another one runs."""

    def __init__(self, rank: int, size: int):
        self._attributes = [(holder, name, initial()) for holder, name, initial in _OF_A_RANK]
        own = zip(_ENVIRONMENT, map(str, (rank, size, rank, size)), strict=True)
        self._environment = {**os.environ, **dict(own)}
        self._states = python_random.getstate(), np.random.get_state()

    def swap(self) -> None:
        """Puts it in place, and keeps what was there."""
        before = [(holder, name, getattr(holder, name)) for holder, name, _ in self._attributes]
        for attribute in self._attributes:
            setattr(*attribute)
        self._attributes = before
        with warnings.catch_warnings():  # which tells them that the filters have changed
            pass
        environment, self._environment = self._environment, {**os.environ}
        for name in self._environment.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment.items() - self._environment.items())
        states, self._states = self._states, (python_random.getstate(), np.random.get_state())
        python_random.setstate(states[0]), np.random.set_state(states[1])


def run(size: int, function: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
    """Returns what `function(*args, **kwargs)` returns on each of `size` ranks, which are threads.

    They share the memory of the process: arguments are the same objects on all ranks, and a rank must make
    what it trains by itself, with a seed. The function calls `init_process_group()`, as it does in processes.

    Raises:
        The first error of a rank; the others then end where they next wait.
        DistError: all ranks that are left wait for each other; or there is a world already.
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
    if not _running.acquire(blocking=False):
        raise DistError("worlds.run(): another thread runs a world, and a process has one at a time")
    try:
        return _run(size, lambda: function(*args, **kwargs))
    finally:
        _running.release()


def _run(size: int, call: Callable[[], T]) -> list[T]:
    world = World([_Registers(rank, size) for rank in range(size)])
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
