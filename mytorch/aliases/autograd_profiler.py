"""PyTorch's older place for the profiler, `autograd.profiler.profile`, which is its own list of events."""

from __future__ import annotations

from typing import Any

from mytorch import profiler
from mytorch.profiler import EventList, FunctionEventAvg, ProfilerActivity, record_function

__all__ = ["profile", "record_function"]


class profile(profiler.profile):  # noqa: N801 - PyTorch's name
    """Records the operations of a block, as `mytorch.profiler.profile`; printed, it is their table.

    Args:
        enabled: False: nothing is recorded.
        use_cuda: the GPU is timed, too.
        use_device: "cuda" is the same.
        options: record_shapes, with_flops, profile_memory, with_stack, with_modules, acc_events as there.

    >>> import mytorch.autograd.profiler
    >>> with mytorch.autograd.profiler.profile() as prof:
    ...     y = mytorch.ones(2, 3) @ mytorch.ones(3, 2)
    >>> [event.name for event in prof.function_events]
    ['matmul']
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, **options: Any
    ):
        activities = [ProfilerActivity.CPU]
        if use_cuda or use_device == "cuda":
            activities.append(ProfilerActivity.CUDA)
        super().__init__(activities=activities, **options)
        self.enabled = enabled

    def __enter__(self) -> profile:
        if self.enabled:
            self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            self.stop()

    @property
    def function_events(self) -> EventList:
        """The recorded operations; it raises a RuntimeError before the end of the block."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum over all events, in microseconds."""
        return self.events().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg | None:
        """Returns the sum of all events; None without any."""
        return self.events().total_average()

    def table(self, *args: Any, **options: Any) -> str:
        """Returns the table of all events: see `EventList.table`."""
        return self.events().table(*args, **options)

    def __str__(self) -> str:
        return "<profile, which recorded nothing>" if self._last is None else self.table()
