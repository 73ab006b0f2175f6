"""When to record: a function from the number of a step to an action."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import Enum


class ProfilerAction(Enum):
    """What the profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3  # the last step of a cycle: afterwards `on_trace_ready` is called


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Returns a schedule: after `skip_first` steps, cycles of `wait`, `warmup` and `active` steps.

    Args:
        active: steps of a cycle that are recorded.
        repeat: the number of cycles; 0 never ends.
        skip_first_wait: other than 0, the first cycle doesn't wait.

    Raises:
        ValueError: a negative number, or no active step.

    >>> from mytorch.profiler import schedule
    >>> action = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [action(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    numbers = {"wait": wait, "warmup": warmup, "repeat": repeat, "skip_first": skip_first}
    if min(numbers.values()) < 0 or active <= 0:
        raise ValueError(f"schedule(): needs active > 0 and the others >= 0, got active={active}, {numbers}")
    if warmup == 0:
        warnings.warn("schedule(): without warmup the first recorded step may be slower", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        cycle, position = divmod(step, length)
        if (repeat and cycle >= repeat) or position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if position < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action
