"""
Join: training goes on until the rank that has the most data is through.

A rank without more data joins: it takes part in the collectives of those that still train, and gives zeros.

    rank 0 | batch 0 | batch 1 | batch 2 |
    rank 1 | batch 0 | zeros   | zeros   |

Every iteration begins with an all-reduce of ones by those who train, and zeros by those who have joined, so
that all know how many still train.

Source: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .collectives import all_reduce
from .world import get_rank


class JoinHook:
    """What a rank does after it has joined; override either."""

    def main_hook(self) -> None:
        """Called once for each iteration of the others: the same collectives, in the same order."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all have joined.

        Args:
            is_last_joiner: is this one of the ranks that trained until the end?
        """


class _Context(NamedTuple):
    throws: bool
    is_first: bool


class Joinable:
    """Something that can be given to `Join`: it calls `Join.notify_join_context(self)` before the first
    collective of each iteration, and defines these two."""

    _join_config: _Context | None = None  # None outside of a Join

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank that has joined does in its place; `kwargs` are those of `Join`."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define join_hook()")

    @property
    def join_process_group(self) -> Any:
        """The ranks that it works on."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define join_process_group")


class Join:
    """Context around a loop that makes more iterations on some ranks than on others.

        with Join([model, optimizer]):
            for x, y in batches:
                optimizer.zero_grad()
                loss_fn(model(x), y).backward()
                optimizer.step()

    An iteration is one forward pass that is followed by one backward pass (and one step of a
    ZeroRedundancyOptimizer), without other collectives.

    Args:
        joinables: the DistributedDataParallel model and, after it, its ZeroRedundancyOptimizer if it has one.
        enable: False does nothing; for data that is the same length everywhere.
        throw_on_early_termination: raise on all ranks as soon as one has no more data.
        kwargs: for `join_hook` of each of them.

    Raises:
        ValueError: there are no joinables, or they work on different groups.
        RuntimeError: see `throw_on_early_termination`.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ):
        self._joinables = list(joinables)
        if not self._joinables:
            raise ValueError("Join: there must be at least one joinable")
        self._group = self._joinables[0].join_process_group
        if any(joinable.join_process_group is not self._group for joinable in self._joinables):
            raise ValueError("Join: the joinables work on different process groups")
        self._enabled, self._throws = enable, throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in self._joinables]

    def __enter__(self) -> Join:
        if self._enabled:
            for i, joinable in enumerate(self._joinables):
                joinable._join_config = _Context(self._throws, i == 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if self._enabled and kind is None:
                self._follow()
        finally:
            for joinable in self._joinables:
                joinable._join_config = None

    def _follow(self) -> None:
        """Do what the others do until all have joined."""
        is_last = True
        while training := _sum(0, self._group):
            if self._throws:
                _sum(1, self._group)
                raise RuntimeError(
                    f"Join: rank {get_rank(self._group)} has no more data, {training} others have "
                    "(throw_on_early_termination=True)"
                )
            for hook in self._hooks:
                hook.main_hook()
            is_last = False
        for hook in self._hooks:
            hook.post_hook(is_last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """Say that this rank still trains; nothing outside of a Join, and for others than its first joinable.

        Raises:
            RuntimeError: another rank has no more data; with `throw_on_early_termination` only.
        """
        context = joinable._join_config
        if context is None or not context.is_first:
            return
        _sum(1, joinable.join_process_group)
        if context.throws and _sum(0, joinable.join_process_group):
            raise RuntimeError("Join: another rank has no more data (throw_on_early_termination=True)")


def _sum(mine: int, group: Any) -> int:
    total = np.array([mine])
    all_reduce(total, group=group)
    return int(total[0])
