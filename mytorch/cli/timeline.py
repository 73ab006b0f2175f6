"""`mytorchrun timeline`: draws an instruction log as a timeline, or converts it for Perfetto."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from ..profiler.chrome_trace import trace_events, write_trace
from ..stream.log import read_log
from ..stream.timeline import make_timeline
from ..stream.timeline_html import write_timeline
from ..stream.timeline_picture import draw_timeline
from ..utils.reading import printable

HELP = "draw an instruction log (MYTORCH_INSTRUCTION_LOG) as a picture or a page"
_MOST = 20  # lines of what never ended, or failed
_SUFFIXES = (".png", ".svg", ".html", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    add = parser.add_argument
    add("log", help="the log, as in MYTORCH_INSTRUCTION_LOG; those of all ranks are found")
    add("--output", "-o", default="timeline.png", help=".png, .svg, .html, or .json for Perfetto")
    add("--start", type=float, default=0.0, help="seconds since the first operation (default 0)")
    add("--end", type=float, default=math.inf, help="seconds since the first operation (default: all)")
    add("--title", default="", help="a line above")
    add("--dpi", type=int, default=160, help="of a .png (default 160)")


def run(options: argparse.Namespace) -> int:
    """Writes the file and prints the idle time of each lane; returns the exit code, 2 for a wrong call."""
    suffix = Path(options.output).suffix.lower()
    try:
        if suffix not in _SUFFIXES:
            raise ValueError(f"--output ends in {', '.join(_SUFFIXES)}, got {options.output!r}")
        line = make_timeline(read_log(options.log), options.start, options.end)
        if suffix == ".html":
            write_timeline(line, options.output, options.title or Path(options.log).name)
        elif suffix == ".json":
            write_trace(options.output, trace_events(line.instructions, line.first), {})
        else:
            draw_timeline(line, options.output, options.title, options.dpi)
    except (OSError, ValueError, ImportError) as error:
        # a full disk's error names no file
        file = f"{options.output}: " if isinstance(error, OSError) and error.filename is None else ""
        print(printable(f"mytorchrun timeline: {file}{error}"), file=sys.stderr)
        return 2
    count = sum(map(len, line.bars.values()))
    shown = f"{1e3 * line.seconds:.3f} ms{f' from {line.begin:.6f} s' if line.begin else ''}"
    print(f"{options.output}: {count} operations, {shown}, {len(line.arrows)} arrows")
    for rank, lane in sorted(line.bars):
        print(f"  rank {rank} {lane:<13} {line.idle(rank, lane):5.1%} idle")
    unfinished = [i for i in line.instructions if i.duration is None or i.failed]
    if len(unfinished) > _MOST:
        print(f"  {len(unfinished)} operations never ended, or failed; the last are")
    for i in unfinished[-_MOST:]:
        what = "never ended" if i.duration is None else "failed"
        print(f"  rank {i.rank} #{i.number} {i.name}{f' in {i.module}' if i.module else ''} {what}")
    return 0
