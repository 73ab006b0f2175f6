"""`mytorchrun trace`: records a window of a running job, without a restart."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from collections import defaultdict
from pathlib import Path

from ..distributed.processes import state_of
from ..profiler.chrome_trace import trace_events, write_trace
from ..stream.log import path_of_rank, read_log
from ..stream.page import Reading, ask_for_trace, read_pages, withdraw_request
from ..utils.reading import printable
from .top import print_refused

HELP = "record the next seconds or operations of running jobs, for `timeline` and Perfetto"
_PATIENCE = 5.0  # seconds more for a rank to notice; it does so when it begins an operation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    add = parser.add_argument
    add("--seconds", "-s", type=float, default=2.0, help="the longest time (default 2)")
    add("--instructions", "-n", type=int, default=0, help="the most operations of a rank (default: all)")
    add("--dir", default=".", help="folder of the traces, made if necessary (default: the current one)")
    add("--pid", type=int, help="only this process")


def run(options: argparse.Namespace) -> int:
    """Writes traces and prints their names; returns the exit code, 1 without a trace, 2 for a wrong call."""
    if not 0 < options.seconds < math.inf or options.instructions < 0:
        wrong = f"needs --seconds > 0 and --instructions >= 0, got {options.seconds}, {options.instructions}"
        print(f"mytorchrun trace: {wrong}", file=sys.stderr)
        return 2
    jobs: dict[str, list[Reading]] = defaultdict(list)
    refused: list[str] = []
    for reading in read_pages(options.pid, refused):
        jobs[reading.job].append(reading)
    print_refused(refused)
    if not jobs:
        print("mytorchrun trace: no running job of this user", file=sys.stderr)
        return 1
    folder = Path(options.dir).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        asked = _ask(jobs, folder, options.seconds, options.instructions)
    except (OSError, ValueError) as error:
        print(printable(f"mytorchrun trace: {error}"), file=sys.stderr)
        return 2
    late = _wait(asked, options.seconds + _PATIENCE)
    for rank in late:
        last = f"its last is {rank.operation or 'none'}"
        last += "; the process is stopped" if state_of(rank.pid) == "stopped" else ""
        print(f"rank {rank.rank} (pid {rank.pid}) began no operation; {last}", file=sys.stderr)
    found = [path for path in _logs(jobs, folder) if _convert(path)]
    if not found and not late:
        print("mytorchrun trace: no operation began, or the job ended before", file=sys.stderr)
    return 0 if found else 1


def _logs(jobs: dict[str, list[Reading]], folder: Path) -> list[Path]:
    """Returns the path of each job's log, without the ranks."""
    return [folder / f"trace-{min(rank.pid for rank in ranks)}.log" for ranks in jobs.values()]


def _ask(
    jobs: dict[str, list[Reading]], folder: Path, seconds: float, instructions: int
) -> list[tuple[Reading, int]]:
    asked = []
    for path, ranks in zip(_logs(jobs, folder), jobs.values(), strict=True):
        for reading in ranks:
            file = path_of_rank(path, reading.rank) if reading.world_size > 1 else path
            file.unlink(missing_ok=True)
            if number := ask_for_trace(reading, seconds, instructions, str(path)):  # else it has ended
                asked.append((reading, number))
    return asked


def _wait(asked: list[tuple[Reading, int]], seconds: float) -> list[Reading]:
    """Waits for the traces; returns the ranks that didn't make theirs.

    It withdraws what these were asked, also after Ctrl-C: their traces would come too late.
    """
    deadline, missing = time.monotonic() + seconds, asked
    try:
        while missing and time.monotonic() < deadline:
            time.sleep(0.02)
            done = {reading.pid: reading.done for reading in read_pages()}
            missing = [
                (reading, number) for reading, number in asked if done.get(reading.pid, number) < number
            ]
    finally:
        for reading, number in missing:
            withdraw_request(reading, number)
    return [reading for reading, _ in missing]


def _convert(path: Path) -> bool:
    """Writes the trace of a log for Perfetto, and prints both names; returns whether there is something."""
    trace = path.with_suffix(".json")
    try:
        found = read_log(path)
        if not found:
            return False
        write_trace(trace, trace_events(found, found[0].start), {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:  # another program wrote into the folder, or the disk is full
        print(printable(f"mytorchrun trace: {error}"), file=sys.stderr)
        return False
    ranks = len({i.rank for i in found})
    print(f"{len(found)} operations of {ranks} rank{'s' * (ranks > 1)}")
    print(f"  mytorchrun timeline {shlex.quote(str(path))} --output timeline.html")
    print(f"  {trace}  for https://ui.perfetto.dev")
    return True
