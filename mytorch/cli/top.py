"""`mytorchrun top`: what the running jobs of this user do now, rank by rank."""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..backends.functions import KINDS
from ..distributed.processes import state_of
from ..stream.page import Reading, read_pages
from ..stream.timeline import COLOURS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

HELP = "show what running jobs do: time by kind of operation, idle time, speed, memory, the last operation"
_HALF_LIFE = 2.0  # seconds in which half of what was seen is forgotten
_BAR, _LEAST = "time by kind", 13  # a column, and the least width of it and of the operation
_DROPPED = ("memory", "step", "job", "idle")  # columns that a narrow terminal doesn't show, the first first
_MOST_REFUSED = 5  # lines
_NOTHING = "no running job of this user: one that `mytorchrun launch` started is seen by itself"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    add = parser.add_argument
    add("--pid", type=int, help="only this process")
    add("--once", action="store_true", help="print once as plain text, as without a terminal; needs no rich")
    add("--interval", type=float, default=0.5, help="seconds between two readings (default 0.5)")


@dataclass
class Activity:
    """The share of its time that a rank spends in each kind of operation, smoothed."""

    last: Reading
    shares: dict[str, float] = field(default_factory=dict)

    def update(self, now: Reading) -> None:
        """Takes another reading into account; an operation that still runs counts since it began."""
        elapsed = now.time - self.last.time
        if elapsed <= 0:
            return
        keep = 0.5 ** (elapsed / _HALF_LIFE) if self.shares else 0.0
        for kind in KINDS:
            spent = now.seconds[kind] - self.last.seconds[kind]
            if now.is_running and kind == now.kind:
                spent += min(now.elapsed, elapsed)
            share = min(1.0, max(0.0, spent / elapsed))
            self.shares[kind] = keep * self.shares.get(kind, 0.0) + (1 - keep) * share
        self.last = now

    @property
    def idle(self) -> float:
        """The share in which the rank neither computed nor loaded data: it may have waited for others."""
        idle = ("annotation", "communication")
        return max(0.0, 1 - sum(share for kind, share in self.shares.items() if kind not in idle))

    @property
    def operation(self) -> str:
        """The operation that runs and for how long, or the last one and since when it is over.

        It says so where the process is stopped, as by SIGSTOP or Ctrl-Z.
        """
        now = self.last
        if not now.operation:
            text = "nothing yet"
        elif now.elapsed < 0.1:
            text = f"{now.operation}{'' if now.is_running else ', just ended'}"
        elif now.is_running:
            text = f"{now.operation} for {now.elapsed:.1f} s"
        else:
            text = f"{now.operation}, ended {now.elapsed:.1f} s ago"
        return f"{text}; process stopped" if state_of(now.pid) == "stopped" else text


def run(options: argparse.Namespace) -> int:
    """Shows; returns the exit code, 1 if nothing runs, 2 for a wrong call."""
    if not 0 < options.interval < math.inf:
        print(f"mytorchrun top: --interval is positive and finite, got {options.interval}", file=sys.stderr)
        return 2
    ranks: dict[int, Activity] = {}
    refused = watch(ranks, options.pid)
    if options.once or not sys.stdout.isatty():
        time.sleep(options.interval)
        watch(ranks, options.pid)
        print_refused(refused)
        print("\n".join(lines_of(ranks)) if ranks else _NOTHING)
        return 0 if ranks else 1
    try:
        from rich.live import Live
    except ImportError:
        print("mytorchrun top needs rich: pip install rich (or give --once)", file=sys.stderr)
        return 2
    try:
        with Live(_Screen(ranks), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(options.interval)
                watch(ranks, options.pid)
                live.update(_Screen(ranks), refresh=True)
    except KeyboardInterrupt:
        return 0


def print_refused(lines: list[str]) -> None:
    """Prints what is no page by its name alone; other users may have made any number of such files."""
    for line in lines[:_MOST_REFUSED]:
        print(f"left out: {line}", file=sys.stderr)
    if len(lines) > _MOST_REFUSED:
        print(f"left out: {len(lines) - _MOST_REFUSED} more", file=sys.stderr)


def watch(ranks: dict[int, Activity], pid: int | None) -> list[str]:
    """Reads all pages; processes that ended are removed. Returns a line for each file that can't be one."""
    refused: list[str] = []
    readings = {reading.pid: reading for reading in read_pages(pid, refused)}
    for gone in ranks.keys() - readings.keys():
        del ranks[gone]
    for number, reading in readings.items():
        if number in ranks:
            ranks[number].update(reading)
        else:
            ranks[number] = Activity(reading)
    return refused


def lines_of(ranks: dict[int, Activity]) -> list[str]:
    """Returns the plain text: a line for each rank, under one for its job."""
    lines, job = [], None
    for activity in sorted(ranks.values(), key=lambda a: (a.last.job, a.last.rank)):
        now = activity.last
        if now.job != job:
            job = now.job
            lines.append(f"job {job}: {now.world_size} rank{'s' * (now.world_size > 1)}")
        shares = sorted(activity.shares.items(), key=lambda pair: -pair[1])
        kinds = " ".join(f"{kind} {share:.0%}" for kind, share in shares if share >= 0.005)
        lines.append(
            f"  rank {now.rank} pid {now.pid} | {kinds or '-'} | idle {activity.idle:.0%} | {_speed(now)} | "
            f"{_memory(now)} | {activity.operation} | {now.count} operations"
        )
    return lines


def _speed(now: Reading) -> str:
    return f"step {now.step}, {now.tokens_per_second:,.0f} tokens/s" if now.step else "-"


def _memory(now: Reading) -> str:
    on_gpu = f", GPU {now.on_gpu / 2**30:.2f} GiB" if now.on_gpu else ""
    return f"{now.resident / 2**30:.2f} GiB{on_gpu}"


@dataclass
class _Screen:
    """What rich draws: a table with a bar for each rank, and the colours of the kinds."""

    ranks: dict[int, Activity]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.columns import Columns
        from rich.text import Text

        if not self.ranks:
            yield Text(_NOTHING)
            return
        yield _table(sorted(self.ranks.values(), key=lambda a: (a.last.job, a.last.rank)), options.max_width)
        seen: dict[str, float] = {}
        for activity in self.ranks.values():
            for kind, share in activity.shares.items():
                seen[kind] = seen.get(kind, 0.0) + share
        shown = [kind for kind, share in seen.items() if share >= 0.005]
        kinds = sorted(shown, key=seen.__getitem__, reverse=True)[:8]
        yield Columns([Text("█ ", style=COLOURS[kind]).append(kind, style="default") for kind in kinds])


def _table(ranks: list[Activity], width: int) -> Table:
    """Returns the table; where it is too narrow for all columns, the least important ones are left out.

    The bars and the operations share what the others leave, whatever their texts, so that they stay in place.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [_facts(activity) for activity in ranks]
    widths = {name: max(len(text) for text in (name, *(row[name] for row in rows))) for name in rows[0]}
    for name in _DROPPED:
        if width - sum(widths.values()) - len(widths) >= 2 * _LEAST:
            break
        del widths[name]
    left = width - sum(widths.values()) - len(widths)
    bar = max(_LEAST, min(40, left // 2))
    widths.update({_BAR: bar - 1, "operation": max(1, left - bar)})
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    shown = [name for name in ("job", "rank", _BAR, "idle", "step", "memory", "operation") if name in widths]
    for name in shown:
        table.add_column(name, width=widths[name], no_wrap=True)
    for activity, row in zip(ranks, rows, strict=True):
        late = activity.last.is_running and activity.last.elapsed > 10
        cells = {name: Text(text) for name, text in row.items()}
        cells[_BAR] = _bar(activity.shares, widths[_BAR])
        cells["operation"] = Text(activity.operation, style="bold red" if late else "")
        table.add_row(*(cells[name] for name in shown))
    return table


def _facts(activity: Activity) -> dict[str, str]:
    now = activity.last
    return {
        "job": now.job.removeprefix("mytorchrun-")[-16:], "rank": f"{now.rank}/{now.world_size}",
        "idle": f"{activity.idle:.0%}", "step": _speed(now), "memory": _memory(now),
    }


def _bar(shares: dict[str, float], width: int) -> Text:
    """Returns the shares as a bar of `width` characters."""
    from rich.text import Text

    bar = Text()
    for kind, share in sorted(shares.items(), key=lambda pair: -pair[1]):
        bar.append("█" * round(width * share), style=COLOURS[kind])
    bar.truncate(width)
    return bar.append("·" * (width - len(bar)), style="dim")
