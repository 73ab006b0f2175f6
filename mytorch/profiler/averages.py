"""Averages: the events of a trace, added up by operation or by module, and their table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ..autograd.tape import text_of_bytes
from ..stream.recorder import rank_of_process
from .chrome_trace import trace_events, write_trace
from .events import FunctionEvent
from .texts import TimeTexts, text_of_number, text_of_time

_SUMS = (
    "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total",
    "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage",
    "flops", "bytes",
)


class FunctionEventAvg(TimeTexts):
    """The sum of the events with one key: see `FunctionEvent` for the attributes.

    Attributes:
        key: the name of the operation, or of the module.
        count: the number of events.
        input_shapes, stack: of the events, where they are grouped by them; else of the first.
        cpu_children, cpu_parent: of the first.
    """

    def __init__(self, key: str, first: FunctionEvent):
        self.key, self.count, self.peak_memory = key, 0, 0
        self.input_shapes, self.stack, self.phase, self.module = first.input_shapes, first.stack, "", ""
        self.is_user_annotation = first.is_user_annotation
        self.cpu_children, self.cpu_parent = first.cpu_children, first.cpu_parent
        for name in _SUMS:
            setattr(self, name, 0)

    def add(self, event: FunctionEvent) -> None:
        """Adds an event, with those within it in the totals."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(event, name))
        self._count(event)

    def add_part(self, event: FunctionEvent, is_own: bool) -> None:
        """Adds an event without those within it, which may be in other modules; `is_own`: to `self_…` too."""
        for name in _SUMS:
            if is_own or not name.startswith("self_"):
                value = getattr(event, f"self_{name}", getattr(event, name))
                setattr(self, name, getattr(self, name) + value)
        self._count(event)

    def _count(self, event: FunctionEvent) -> None:
        self.count += 1
        self.peak_memory = max(self.peak_memory, event.peak_memory)

    @property
    def cpu_time(self) -> float:
        """The mean of `cpu_time_total`."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean of `device_time_total`."""
        return self.device_time_total / self.count if self.count else 0.0

    def __repr__(self) -> str:
        return f"<FunctionEventAvg {self.key} count={self.count} self_cpu={self.self_cpu_time_total:.1f} us>"


class EventList(list):
    """A list of events or averages, with a table.

    Args:
        events: those of the list.
        with_flops, with_memory, with_device, with_shapes: the columns of the table.
    """

    def __init__(
        self, events: Iterable[FunctionEvent | FunctionEventAvg] = (), *, with_flops: bool = False,
        with_memory: bool = False, with_device: bool = False, with_shapes: bool = False,
        with_stack: bool = False,
    ):
        super().__init__(events)
        self._options = {
            "with_flops": with_flops, "with_memory": with_memory, "with_device": with_device,
            "with_stack": with_stack,
        }
        self._with_shapes = with_shapes

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, *, group_by_module: bool = False
    ) -> EventList:
        """Returns the sums of the events by name; with `group_by_module` by path and phase instead.

        The row of a module has the events of the modules within it in its totals, its own ones alone in
        `self_…`.
        """
        if group_by_module:
            return self._by_module()
        found: dict[tuple, FunctionEventAvg] = {}
        for event in self:
            key = event.key, str(event.input_shapes) if group_by_input_shape else ""
            key = (*key, *(event.stack[:group_by_stack_n]))
            if key not in found:
                found[key] = FunctionEventAvg(event.key, event)
            found[key].add(event)
        return EventList(found.values(), **self._options, with_shapes=group_by_input_shape)

    def _by_module(self) -> EventList:
        found: dict[tuple[str, str], FunctionEventAvg] = {}
        for event in self:
            if event.is_user_annotation:
                continue
            path = event.module or "(no module)"
            for prefix in _prefixes(path):
                key = prefix, event.phase
                if key not in found:
                    found[key] = FunctionEventAvg(f"{prefix} {event.phase}", event)
                    found[key].module, found[key].phase = key
                found[key].add_part(event, prefix == path)
        return EventList(found.values(), **self._options)

    def total_average(self) -> FunctionEventAvg | None:
        """Returns the sum of all events; None without any."""
        if not self:
            return None
        total = FunctionEventAvg("Total", self[0])
        for event in self:
            total.add(event)
        total.count = sum(event.count for event in self)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        """The sum over all events, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        """Writes the events for Perfetto and chrome://tracing, compressed if the path ends in `.gz`.

        Raises:
            ValueError: these are averages, which have no beginning.
        """
        if any(isinstance(event, FunctionEventAvg) for event in self):
            raise ValueError("export_chrome_trace(): these are averages; a trace is made of events()")
        zero = min((e.instruction.start - e.start / 1e6 for e in self), default=0.0)
        write_trace(path, trace_events((e.instruction for e in self), zero), {"rank": rank_of_process()})

    def export_stacks(self, path: str | os.PathLike, metric: str = "self_cpu_time_total") -> None:
        """Writes `line operation microseconds` lines, for flame graphs.

        Args:
            metric: "self_cpu_time_total", or "self_cuda_time_total" for the GPU.

        Raises:
            ValueError: another metric, or without `with_stack=True`.
        """
        with_stack = self._options["with_stack"]
        if metric not in ("self_cpu_time_total", "self_cuda_time_total") or not with_stack:
            raise ValueError(
                "export_stacks() needs with_stack=True, and self_cpu_time_total or self_cuda_time_total as "
                f"metric, got with_stack={with_stack}, {metric!r}"
            )
        lines = [f"{'_'.join(e.stack[0].split())};{e.key} {int(getattr(e, metric))}" for e in self if e.stack]
        Path(path).write_text("\n".join(lines) + "\n")

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80, header: str | None = None,
        top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:
        """Returns a table, a row for each average.

        Args:
            sort_by: an attribute, largest first: "self_cpu_time_total", "cpu_time_total", "cpu_time",
                "self_device_time_total", "count", "flops", "bytes", "self_cpu_memory_usage", "peak_memory",
                "key", …
            row_limit: the number of rows; -1 for all.
            header: a line above.
            time_unit: "us", "ms" or "s" for all times; by default each has its own.

        Raises:
            ValueError: no such attribute to sort by, or unit.
        """
        if time_unit not in (None, "us", "ms", "s"):
            raise ValueError(f"table(): time_unit is 'us', 'ms' or 's', got {time_unit!r}")
        rows = list(self)
        if top_level_events_only:
            rows = [e for e in rows if not getattr(e, "is_inner", False)]
        if sort_by is not None:
            if rows and not isinstance(getattr(rows[0], sort_by, None), (int, float, str, list)):
                raise ValueError(f"table(): can't sort by {sort_by!r}")
            rows.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        if row_limit >= 0:
            rows = rows[:row_limit]
        widths = max_name_column_width, max_shapes_column_width, max_src_column_width
        columns = self._columns(time_unit, *widths)
        cells = [list(columns), *([show(e) for show in columns.values()] for e in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        rule = "  ".join("-" * width for width in widths)
        text = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        total = f"Self CPU time total: {text_of_time(self.self_cpu_time_total, time_unit)}"
        if self._options["with_device"]:
            on_gpu = sum(e.self_device_time_total for e in self)
            total += f"\nSelf CUDA time total: {text_of_time(on_gpu, time_unit)}"
        return "\n".join([*([header] if header else []), rule, text[0], rule, *text[1:], rule, total, ""])

    def _columns(
        self, unit: str | None, name_width: int, shapes_width: int, stack_width: int
    ) -> dict[str, Callable[[FunctionEventAvg], str]]:
        cpu = self.self_cpu_time_total
        columns: dict[str, Callable[[FunctionEventAvg], str]] = {
            "Name": lambda e: _shortened(e.key, name_width),
            "Self CPU %": lambda e: _percent(e.self_cpu_time_total, cpu),
            "Self CPU": lambda e: text_of_time(e.self_cpu_time_total, unit),
            "CPU total %": lambda e: _percent(e.cpu_time_total, cpu),
            "CPU total": lambda e: text_of_time(e.cpu_time_total, unit),
            "CPU time avg": lambda e: text_of_time(e.cpu_time, unit),
        }
        if self._options["with_device"]:
            gpu = sum(e.self_device_time_total for e in self)
            columns["Self CUDA"] = lambda e: text_of_time(e.self_device_time_total, unit)
            columns["Self CUDA %"] = lambda e: _percent(e.self_device_time_total, gpu)
            columns["CUDA total"] = lambda e: text_of_time(e.device_time_total, unit)
            columns["CUDA time avg"] = lambda e: text_of_time(e.device_time, unit)
        if self._options["with_memory"]:
            columns["CPU Mem"] = lambda e: text_of_bytes(e.cpu_memory_usage)
            columns["Self CPU Mem"] = lambda e: text_of_bytes(e.self_cpu_memory_usage)
            if self._options["with_device"]:
                columns["CUDA Mem"] = lambda e: text_of_bytes(e.device_memory_usage)
                columns["Self CUDA Mem"] = lambda e: text_of_bytes(e.self_device_memory_usage)
            columns["Peak Mem"] = lambda e: text_of_bytes(e.peak_memory)
        columns["# of Calls"] = lambda e: str(e.count)
        if self._options["with_flops"]:
            columns["Total FLOPs"] = lambda e: text_of_number(e.flops) if e.flops else "--"
            columns["Bytes"] = lambda e: text_of_bytes(e.bytes)
        if self._with_shapes:
            columns["Input Shapes"] = lambda e: _shortened(str(e.input_shapes), shapes_width)
        if self._options["with_stack"]:
            columns["Source Location"] = lambda e: _shortened(" ".join(e.stack), stack_width)
        return columns

    def __str__(self) -> str:
        return self.table()


def _prefixes(path: str) -> list[str]:
    """Returns the module and those that contain it: "h.3.attn", "h.3", "h"."""
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)] if " " not in path else [path]


def _percent(part: float, total: float) -> str:
    return f"{part / total:.2%}" if total else "0.00%"


def _shortened(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else f"{text[: width - 3]}..."
