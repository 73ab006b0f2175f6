"""Turns: of ranks that are threads one runs at a time, until it waits for others; see `worlds`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .backends.threads import Exchange
from .errors import DistError


class Registers(Protocol):
    """What belongs to one rank while another one runs."""

    def swap(self) -> None:
        """Puts it in place, and keeps what was there."""


class World:
    """Ranks that are threads. One runs; the others wait for their turn.

    Args:
        registers: of each rank.

    Attributes:
        exchange: what they give each other.
        generation: how often each rank has made the default group.
    """

    def __init__(self, registers: Sequence[Registers]):
        self.size = size = len(registers)
        self.exchange, self.generation = Exchange(), [0] * size
        self._turns = [threading.Semaphore(0) for _ in range(size)]
        self._waiting: list[tuple[Callable[[], bool], Callable[[], str]] | None] = [None] * size
        self._ended = [False] * size
        self._registers = registers
        self._over: DistError | None = None  # why the ranks that are left have to end
        self.results: list[Any] = [None] * size
        self.error: BaseException | None = None  # the first one

    @property
    def rank(self) -> int:
        """The rank that runs.

        Raises:
            DistError: this thread is none of the world's.
        """
        if _current.world is not self:
            raise DistError("a rank of a world calls collectives in its own thread, while the world runs")
        return _current.rank

    def check(self, rank: int) -> None:
        """Raises DistError unless this thread is that rank."""
        if self.rank != rank:
            raise DistError(f"rank {self.rank} can't use a group that rank {rank} has made for itself")

    def wait(self, ready: Callable[[], bool], describe: Callable[[], str]) -> None:
        """Lets others run until `ready()`, which must change nothing, since it is called in any thread.

        Raises:
            DistError: nothing can run any more, or another rank has failed.
        """
        rank = self.rank
        while not ready():
            self._waiting[rank] = ready, describe
            following = self._following(rank)
            if following is None:
                self._over = self._over or DistError(self._deadlock())
                raise self._over
            self._pass(rank, following)
        self._waiting[rank] = None

    def turn(self) -> None:
        """Lets each other rank run that can."""
        following = self._following(self.rank)
        if following is not None and following != self.rank:
            self._pass(self.rank, following)

    def _pass(self, rank: int, following: int) -> None:
        if following != rank:
            self._registers[rank].swap()
            self._turns[following].release()
            self._turns[rank].acquire()
            self._registers[rank].swap()
        if self._over is not None:
            raise self._over

    def _following(self, rank: int) -> int | None:
        """Returns the next rank that can run, this one the last; None if none can."""
        for other in [*range(rank + 1, self.size), *range(rank + 1)]:
            waiting = self._waiting[other]
            if not self._ended[other] and (waiting is None or waiting[0]() or self._over is not None):
                return other
        return None

    def _deadlock(self) -> str:
        lines = []
        for rank, waiting in enumerate(self._waiting):
            ended = f"rank {rank} has ended"
            lines.append(f"  {ended if self._ended[rank] or waiting is None else waiting[1]()}")
        return "\n".join(["deadlock: no rank can go on:", *lines])

    def main(self, rank: int, function: Callable[[], Any]) -> None:
        """Runs a rank, in its thread."""
        _current.world, _current.rank = self, rank
        self._turns[rank].acquire()
        self._registers[rank].swap()
        try:
            if self._over is None:
                self.results[rank] = function()
        except BaseException as error:
            ends = isinstance(error, SystemExit) and not error.code  # as a process does, without an error
            if self.error is None and not ends:
                self.error = error
                self._over = self._over or DistError(f"rank {rank} has failed: {error!r}")
        self._ended[rank], self._waiting[rank] = True, None
        self._registers[rank].swap()
        following = self._following(rank)
        if following is None and not all(self._ended):
            self._over = DistError(self._deadlock())
            following = self._following(rank)
        if following is not None:
            self._turns[following].release()

    def stop(self) -> None:
        """Ends all ranks where they next wait."""
        self._over = self._over or DistError("the world was stopped")

    def begin(self) -> None:
        """Gives the first rank its turn."""
        self._turns[0].release()


class _Current(threading.local):
    world: World | None = None
    rank = -1


_current = _Current()


def current() -> World | None:
    """Returns the world of which this thread is a rank; None outside of any."""
    return _current.world
