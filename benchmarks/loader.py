"""Time how fast worker processes load batches, beside PyTorch's DataLoader.

    python -m benchmarks.loader [--rounds N]

Each implementation lives in a process of its own, with workers that stay; they take turns at every load, on
the same arrays, with persistent workers and the default prefetch_factor, and without workers. A time is that
of a whole pass, of which the program reads one number a batch, through NumPy; a pass before it, which isn't
timed, compares all that the batches hold. Times are medians over the rounds during which no other program
used the processor (all of them where there is no such round). Exit code 1: the batches differ, or a worker
ended early.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.gpt_step import Variant
from benchmarks.loader_problem import LOADS, REPEATS, TINY, Load
from benchmarks.machine import cpu_model
from benchmarks.protocol import WorkerError
from benchmarks.report import LossMismatch, Measurement
from benchmarks.turns import TurnsParser, table_lines, take_turns

VARIANTS = [
    Variant("PyTorch", "benchmarks.workers.torch_loader"),
    Variant("mytorch", "benchmarks.workers.mytorch_loader"),
]
TOLERANCE = 1e-6


def loads_of(name: str) -> list[Load]:
    """The loads that "all" or "tiny" (for the tests) means."""
    return {"all": LOADS, "tiny": TINY}[name]


def report(loads: list[Load], about: list[dict], table: list[list[Measurement]], limit: float) -> str:
    """The text that is printed; a ratio is how many times as many samples a second PyTorch's are."""
    rows = [
        (
            str(load),
            [load.samples / statistics.median(m.times(limit)) * 1e3 for m in measurements],
            measurements,
        )
        for load, measurements in zip(loads, table, strict=True)
    ]
    facts = [f"{v.label}: {each['version']}" for v, each in zip(VARIANTS, about, strict=True)]
    lines = [cpu_model(), *facts, "", *table_lines("samples/s", rows, 0, limit)]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = TurnsParser("loader", __doc__, 5)
    parser.add_argument("--loads", default="all", choices=("all", "tiny"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    loads = loads_of(args.loads)
    try:
        about, table = take_turns(
            VARIANTS, [args.loads], len(loads), args.rounds, args.other_cores, REPEATS, TOLERANCE
        )
    except (LossMismatch, WorkerError) as error:
        sys.exit(f"benchmarks.loader: {error}")
    print(report(loads, about, table, args.other_cores))


if __name__ == "__main__":
    main()
