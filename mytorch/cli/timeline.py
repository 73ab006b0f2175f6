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

HELP = "draw an instruction log (MYTORCH_INSTRUCTION_LOG) as a picture or a page"
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
            shown = [bar.instruction for bars in line.bars.values() for bar in bars]
            shown.sort(key=lambda i: i.start)
            write_trace(options.output, trace_events(shown, line.first), {})
        else:
            draw_timeline(line, options.output, options.title, options.dpi)
    except (OSError, ValueError, ImportError) as error:
        print(f"mytorchrun timeline: {error}", file=sys.stderr)
        return 2
    count = sum(map(len, line.bars.values()))
    shown = f"{1e3 * line.seconds:.3f} ms{f' from {line.begin:.6f} s' if line.begin else ''}"
    print(f"{options.output}: {count} operations, {shown}, {len(line.arrows)} arrows")
    for rank, lane in sorted(line.bars):
        print(f"  rank {rank} {lane:<13} {line.idle(rank, lane):5.1%} idle")
    for bar in [bar for bars in line.bars.values() for bar in bars if bar.is_hatched]:
        i = bar.instruction
        print(f"  rank {i.rank} #{i.number} {i.name} {'never ended' if bar.is_open else 'failed'}")
    return 0
