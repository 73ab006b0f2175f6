"""
Join: trains with uneven numbers of batches, until the rank with the most data has finished.

A rank that has no more data joins: it takes part in the collectives of those that still train, with zeros.

    rank 0 | batch 0 | batch 1 | batch 2 |
    rank 1 | batch 0 | zeros   | zeros   |

Every iteration starts with an all-reduce of 1 by ranks that train and 0 by those that have joined, so
that all know how many still train.

Source: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .collectives import all_reduce
from .process_group import ProcessGroup
from .world import get_rank


class JoinHook:
    """The work of a rank that has joined; override either method."""

    def main_hook(self) -> None:
        """Called for each iteration of the other ranks; makes the same collective calls in the same order."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all have joined.

        Args:
            is_last_joiner: whether this rank trained until the end.
        """


class _JoinConfig(NamedTuple):
    throws: bool
    is_first: bool


class Joinable:
    """Base class of what `Join` takes: a subclass calls `Join.notify_join_context(self)` before the first
    collective of each iteration, and defines these two."""

    _join_config: _JoinConfig | None = None  # None outside of a Join

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns the hook for ranks that have joined; `kwargs` are those of `Join`."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define join_hook()")

    @property
    def join_process_group(self) -> ProcessGroup | None:
        """The group that it works on."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define join_process_group")


class Join:
    """Context manager for a loop that has more iterations on some ranks than on others.

        with Join([model, optimizer]):
            for x, y in batches:
                optimizer.zero_grad()
                loss_fn(model(x), y).backward()
                optimizer.step()

    An iteration is one forward pass followed by one backward pass (and one step of a
    ZeroRedundancyOptimizer), without other collectives.

    Args:
        joinables: the DistributedDataParallel model and, after it, its ZeroRedundancyOptimizer if any.
        enable: False disables it, for data of equal length on all ranks.
        throw_on_early_termination: raise on all ranks as soon as one has no more data.
        kwargs: for `join_hook` of each of them.

    Raises:
        ValueError: no joinables, or they work on different groups.
        RuntimeError: see `throw_on_early_termination`.
    """

    def __init__(
        self, joinables: Sequence[Joinable], enable: bool = True, throw_on_early_termination: bool = False,
        **kwargs: Any,
    ):
        self._joinables = list(joinables)
        if not self._joinables:
            raise ValueError("Join: expected at least one joinable")
        self._group = self._joinables[0].join_process_group
        if any(joinable.join_process_group is not self._group for joinable in self._joinables):
            raise ValueError("Join: the joinables work on different process groups")
        self._enabled, self._throws = enable, throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in self._joinables]

    def __enter__(self) -> Join:
        if self._enabled:
            for i, joinable in enumerate(self._joinables):
                joinable._join_config = _JoinConfig(self._throws, i == 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._enabled and kind is None:
                self._shadow_others()
        finally:
            for joinable in self._joinables:
                joinable._join_config = None

    def _shadow_others(self) -> None:
        """Repeats the collectives of the other ranks until all have joined."""
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
        """Signals that this one still trains; only for the first joinable of a Join.

        Raises:
            RuntimeError: another rank has no more data; with `throw_on_early_termination` only.
        """
        config = joinable._join_config
        if config is None or not config.is_first:
            return
        _sum(1, joinable.join_process_group)
        if config.throws and _sum(0, joinable.join_process_group):
            raise RuntimeError("Join: another rank has no more data (throw_on_early_termination=True)")


def _sum(value: int, group: ProcessGroup | None) -> int:
    total = np.array([value])
    all_reduce(total, group=group)
    return int(total[0])
