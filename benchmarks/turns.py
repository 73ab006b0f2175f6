"""Several implementations take turns at a list of jobs, each in a process of its own."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time

from benchmarks.gpt_step import Variant, thread_environment, wait_for_quiet, watch
from benchmarks.protocol import Worker
from benchmarks.report import Chunk, LossMismatch, Measurement

PAUSE = 0.05  # seconds; so long the threads of the one before may spin, waiting for its next job


class TurnsParser(argparse.ArgumentParser):
    """The command line of a benchmark whose implementations take turns: `--rounds` and `--other-cores`.

    Args:
        name: of the benchmark's module.
        about: the module's docstring.
        rounds: the default.
    """

    def __init__(self, name: str, about: str, rounds: int):
        super().__init__(prog=f"python -m benchmarks.{name}", description=about.strip().splitlines()[0])
        self.add_argument(
            "--rounds",
            type=int,
            default=rounds,
            help="how often each implementation has its turn (%(default)s)",
        )
        self.add_argument(
            "--other-cores", type=float, default=0.05,
            help="a turn in which other programs used more cores than this isn't quiet (%(default)s)",
        )  # fmt: skip

    def parse_args(self, argv: list[str] | None = None) -> argparse.Namespace:
        args = super().parse_args(argv)
        if args.rounds < 1:
            self.error(f"--rounds must be at least 1, got {args.rounds}")
        return args


def table_lines(
    title: str, rows: list[tuple[str, list[float], list[Measurement]]], digits: int, limit: float
) -> list[str]:
    """A table of (label, a figure of each implementation, their measurements), as lines.

    The ratio is the last figure as a multiple of the first.
    """
    names = [measured.label for measured in rows[0][2]]
    columns = "".join(f"{name:>16}" for name in names)
    lines = [f"{title:<46}{columns}{'ratio':>8}{'quiet rounds':>16}"]
    for label, figures, measurements in rows:
        quiet = min(len(measured.quiet(limit)) for measured in measurements)
        lines.append(
            f"{label:<46}"
            + "".join(f"{figure:>16.{digits}f}" for figure in figures)
            + f"{figures[-1] / figures[0]:>8.2f}{quiet:>7} of {len(measurements[0].chunks)}"
        )
    return lines


def run_job(
    workers: list[Worker], measurements: list[Measurement], backwards: bool, repeats: int, tolerance: float
) -> None:
    """One job of one round, for every worker: `repeats` steps, of which the first third isn't timed.

    A core that was idle takes a few short steps to get going, and so do threads that slept: there is no pause
    between those steps and the timed ones.

    Raises LossMismatch where the figures that the steps return differ.
    """
    results, warm_up = {}, max(1, repeats // 3)
    turns = list(zip(workers, measurements, strict=True))
    for worker, measured in reversed(turns) if backwards else turns:
        time.sleep(PAUSE)
        timed, others = watch(lambda worker=worker: worker.run(repeats))
        measured.chunks.append(Chunk(statistics.median(timed["ms"][warm_up:]), others))
        results[worker.label] = timed["losses"][0]
    first, *rest = (results[worker.label] for worker in workers)
    if any(not math.isclose(first, other, rel_tol=tolerance, abs_tol=tolerance) for other in rest):
        raise LossMismatch(f"the results differ: {results}")


def take_turns(
    variants: list[Variant], args: list[str], jobs: int, rounds: int, limit: float, repeats: int,
    tolerance: float,
) -> tuple[list[dict], list[list[Measurement]]]:  # fmt: skip
    """What the workers say of themselves, and for every job the measurement of each.

    Args:
        args: of the workers; their steps are all jobs, in order, `repeats` times each.
        limit: the cores that other programs may use, as far as waiting helps.
    """
    workers: list[Worker] = []
    try:
        for variant in variants:
            environment = thread_environment(os.environ) | variant.env
            workers.append(Worker(variant.label, variant.module, [*args, *variant.options], environment))
        about = [worker.read() for worker in workers]
        for worker in workers:
            worker.run(0, restart=True)
        table = [[Measurement(w.label, a) for w, a in zip(workers, about, strict=True)] for _ in range(jobs)]
        for i in range(rounds):
            wait_for_quiet(limit, time.monotonic() + 10)
            for measurements in table:
                run_job(workers, measurements, i % 2 == 1, repeats, tolerance)
    finally:
        for worker in workers:
            worker.close()
    return about, table
