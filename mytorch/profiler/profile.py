"""profile: records a program, or some of its steps, for tables and traces."""

from __future__ import annotations

import functools
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from .. import cuda
from ..core.grad_mode import _state
from ..stream.recorder import rank_of_process
from ..stream.recording import start, stop
from .averages import EventList
from .chrome_trace import trace_events, write_trace
from .events import Collector
from .memory import MemoryRecord
from .schedule import ProfilerAction

_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class ProfilerActivity(Enum):
    """What is timed: operations on the CPU, and with CUDA events what they run on a GPU."""

    CPU = 0
    CUDA = 2


def supported_activities() -> set[ProfilerActivity]:
    """Returns what can be timed on this machine.

    >>> import mytorch.profiler
    >>> mytorch.profiler.ProfilerActivity.CPU in mytorch.profiler.supported_activities()
    True
    """
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])}


class profile:  # noqa: N801 - PyTorch's name
    """Records the operations of a program: as a context, or by `start()` and `stop()`.

        with profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=show) as prof:
            for batch in loader:
                train(batch)
                prof.step()

    Args:
        activities: ProfilerActivity's members; all that are supported by default.
        schedule: from the number of a step to a ProfilerAction; by default everything is recorded.
        on_trace_ready: called with the profiler after the last step of a cycle, and at the end.
        record_shapes: for `key_averages(group_by_input_shape=True)`; they are recorded in any case.
        profile_memory: the arrays that operations made, and how long they lived; see `memory_summary`.
        with_stack: the line of the user's program of each operation.
        with_flops: columns for FLOPs and bytes.
        with_modules: the path of the module; it is recorded in any case.
        acc_events: `events()` has those of all cycles, not those of the last.

    A GPU is timed by CUDA events before and after each operation; they are read when the recording stops, so
    that no step waits.

    Raises:
        ValueError: no activities, or CUDA without a GPU.

    >>> from mytorch.profiler import profile
    >>> with profile() as prof:
    ...     y = mytorch.ones(2, 3) @ mytorch.ones(3, 2)
    >>> [(row.key, row.count) for row in prof.key_averages()]
    [('matmul', 1)]
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
        with_modules: bool = False, acc_events: bool = False,
    ):
        possible = supported_activities()
        self.activities = possible if activities is None else set(activities)
        if self.activities - possible == {ProfilerActivity.CUDA} and self.activities & possible:
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
            self.activities &= possible
        if not self.activities:
            raise ValueError("profile(): no activities: give ProfilerActivity.CPU, CUDA or both")
        if not self.activities <= possible:
            missing = ", ".join(str(getattr(a, "name", repr(a))) for a in self.activities - possible)
            raise ValueError(f"profile(): {missing} can't be timed on this machine")
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.with_stack, self.with_flops = record_shapes, with_stack, with_flops
        self.profile_memory, self.with_modules, self.acc_events = profile_memory, with_modules, acc_events
        self.step_num = 0
        self.current_action = self._action()
        self._collector: Collector | None = None  # of the recording that runs
        self._last: Collector | None = None  # of the one that ended
        self._events = EventList()
        self._metadata: dict[str, object] = {}
        self._step_block: record_function | None = None

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    # Begin and end.

    def start(self) -> None:
        """Starts; records at once unless the schedule waits."""
        self.current_action = self._action()  # it may have been stopped before
        self._follow(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """Stops; a recording in progress ends, and `on_trace_ready` is called."""
        self._end_step()
        self._follow(self.current_action, ProfilerAction.NONE, is_end=True)
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """Ends a step: the next one does what the schedule says."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self._action()
        self._follow(before, self.current_action)
        self._begin_step()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _begin_step(self) -> None:
        if self.schedule is not None and self._collector is not None:
            self._step_block = record_function(f"ProfilerStep#{self.step_num}")
            self._step_block.__enter__()

    def _end_step(self) -> None:
        if self._step_block is not None:
            self._step_block.__exit__(None, None, None)
            self._step_block = None

    def _follow(self, before: ProfilerAction, now: ProfilerAction, is_end: bool = False) -> None:
        """Starts and stops recording where the action changes."""
        if self._collector is not None and (before is ProfilerAction.RECORD_AND_SAVE or now not in _RECORDS):
            if before is ProfilerAction.RECORD and not is_end:
                text = f"incorrect schedule: RECORD followed by {now.name}, without RECORD_AND_SAVE"
                warnings.warn(text, stacklevel=4)
            self._stop_trace()
            if self.on_trace_ready is not None and (is_end or before is ProfilerAction.RECORD_AND_SAVE):
                self.on_trace_ready(self)
        if now in _RECORDS and self._collector is None:
            memory = MemoryRecord() if self.profile_memory else None
            self._collector = Collector(self.with_stack, ProfilerActivity.CUDA in self.activities, memory)
            start(self._collector)

    def _stop_trace(self) -> None:
        collector, self._collector = self._collector, None
        stop(collector)
        if collector.memory is not None:
            collector.memory.is_open = False
        earlier = self._events if self.acc_events else ()
        self._events = EventList(
            [*earlier, *collector.events()], with_flops=self.with_flops, with_memory=self.profile_memory,
            with_device=ProfilerActivity.CUDA in self.activities, with_stack=self.with_stack,
        )
        self._last = collector

    # Results.

    def _finished(self) -> Collector:
        if self._last is None:
            raise RuntimeError("the profiler recorded nothing yet: stop it first, or wait for on_trace_ready")
        return self._last

    def events(self) -> EventList:
        """Returns the recorded operations, in the order in which they began.

        Raises:
            RuntimeError: no recording has ended.
        """
        self._finished()
        return self._events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, *, group_by_module: bool = False
    ) -> EventList:
        """Returns the sums by operation, or by module and phase; see `EventList.key_averages`.

        Raises:
            ValueError: by shapes, without `record_shapes=True`; by stack, without `with_stack=True`.
        """
        if group_by_input_shape and not self.record_shapes:
            raise ValueError("key_averages(group_by_input_shape=True) needs profile(record_shapes=True)")
        if group_by_stack_n and not self.with_stack:
            raise ValueError(f"key_averages(group_by_stack_n={group_by_stack_n}) needs with_stack=True")
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_module=group_by_module
        )

    def memory_summary(self) -> str:
        """Returns a table of who holds what at the peak, by phase, module and operation.

        Raises:
            ValueError: without `profile_memory=True`.
        """
        memory = self._finished().memory
        if memory is None:
            raise ValueError("memory_summary() needs profile(profile_memory=True)")
        return memory.summary()

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        """Writes the trace for Perfetto and chrome://tracing, compressed if the path ends in `.gz`."""
        last = self._finished()
        facts = {"rank": rank_of_process(), **self._metadata}
        write_trace(path, trace_events(last.instructions, last.zero, last.memory), facts)

    def export_stacks(self, path: str | os.PathLike, metric: str = "self_cpu_time_total") -> None:
        """Writes `line operation microseconds` lines, for flame graphs.

        Args:
            metric: "self_cpu_time_total", or "self_cuda_time_total" for the GPU.

        Raises:
            ValueError: another metric, or without `with_stack=True`.
        """
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a text to the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a value to the trace, given as JSON."""
        self._metadata[key] = json.loads(value)


class record_function:  # noqa: N801 - PyTorch's name
    """Gives a block of a program, or a function, a name in recordings; costs a test if nothing is recorded.

    Args:
        name: of the block.
        args: a text, shown with it.

    Raises:
        TypeError: the name is no text.

    >>> from mytorch.profiler import profile, record_function
    >>> with profile() as prof, record_function("twice"):
    ...     y = mytorch.ones(3) * 2
    >>> [row.key for row in prof.key_averages()]
    ['twice', 'mul']
    """

    def __init__(self, name: str, args: str | None = None):
        if not isinstance(name, str):
            raise TypeError(f"record_function(): the name is a str, got {type(name).__name__}")
        self.name, self.args = name, args
        self._running: list[Any] = []

    def __enter__(self) -> record_function:
        stream = _state.stream
        keywords = None if self.args is None else {"args": self.args}
        instruction = None if stream is None else stream.begin(self.name, keywords=keywords)
        self._running.append((stream, instruction))
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        stream, instruction = self._running.pop()
        if stream is not None:
            stream.end(instruction, failed=kind is not None)

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return call


def tensorboard_trace_handler(
    dir_name: str | os.PathLike, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Returns an `on_trace_ready` that writes each trace to a folder, under the name that TensorBoard wants.

    Args:
        dir_name: made if necessary.
        worker_name: by default of host and process.
    """

    def handler(prof: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        suffix = ".gz" if use_gzip else ""
        prof.export_chrome_trace(folder / f"{worker}.{time.time_ns()}.pt.trace.json{suffix}")

    return handler
