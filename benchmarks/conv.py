"""Time forward and backward of convolutions beside PyTorch eager.

    python -m benchmarks.conv [--shapes resnet|other] [--rounds N]

Each implementation lives in a process of its own; they take turns at every shape, on the same arrays, in
float32. Times are medians over the rounds during which no other program used the processor (all of them where
there is no such round). Exit code 1: the results differ, or a worker ended early.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time

from benchmarks.conv_problem import REPEATS, SHAPES, Shape
from benchmarks.gpt_step import thread_environment, wait_for_quiet, watch
from benchmarks.machine import cpu_model
from benchmarks.protocol import Worker, WorkerError
from benchmarks.report import Chunk, LossMismatch, Measurement

VARIANTS = {"PyTorch eager": "benchmarks.workers.torch_conv", "mytorch": "benchmarks.workers.mytorch_conv"}
TOLERANCE = 1e-3  # of the sum of three numbers, each of them a sum of up to 100,000 products in float32


def run_shape(workers: list[Worker], measurements: list[Measurement], backwards: bool) -> None:
    """One shape of one round, for every worker; raises LossMismatch where their results differ."""
    results = {}
    turns = list(zip(workers, measurements, strict=True))
    for worker, measured in reversed(turns) if backwards else turns:
        warm = worker.run(1)
        timed, others = watch(lambda worker=worker: worker.run(REPEATS - 1))
        measured.chunks.append(Chunk(statistics.median(timed["ms"]), others))
        results[worker.label] = warm["losses"][0]
    first, *rest = (results[worker.label] for worker in workers)
    if any(not math.isclose(first, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for other in rest):
        raise LossMismatch(f"the results differ: {results}")


def compare(name: str, rounds: int, limit: float) -> tuple[list[dict], list[list[Measurement]]]:
    """(what the workers say of themselves, the measurements of each for every shape)."""
    workers: list[Worker] = []
    try:
        for label, module in VARIANTS.items():
            workers.append(Worker(label, module, [name], thread_environment(os.environ)))
        about = [worker.read() for worker in workers]
        for worker in workers:
            worker.run(0, restart=True)
        table = [[Measurement(w.label, a) for w, a in zip(workers, about, strict=True)] for _ in SHAPES[name]]
        for i in range(rounds):
            wait_for_quiet(limit, time.monotonic() + 10)
            for measurements in table:
                run_shape(workers, measurements, backwards=i % 2 == 1)
    finally:
        for worker in workers:
            worker.close()
    return about, table


def report(shapes: list[Shape], about: list[dict], table: list[list[Measurement]], limit: float) -> str:
    """The text that is printed."""
    lines = [
        cpu_model(),
        *(
            f"{label}: {facts['version']}; {facts['blas']}; {facts['threads']} threads"
            for label, facts in zip(VARIANTS, about, strict=True)
        ),
    ]
    lines += [
        "",
        f"{'forward + backward, ms':<46}"
        + "".join(f"{label:>16}" for label in VARIANTS)
        + f"{'ratio':>8}{'quiet rounds':>16}",
    ]
    for shape, measurements in zip(shapes, table, strict=True):
        times = [statistics.median(measured.times(limit)) for measured in measurements]
        quiet = min(len(measured.quiet(limit)) for measured in measurements)
        lines.append(
            f"{shape!s:<46}"
            + "".join(f"{ms:>16.2f}" for ms in times)
            + f"{times[-1] / times[0]:>8.2f}{quiet:>7} of {len(measurements[0].chunks)}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conv", description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="resnet", choices=SHAPES, metavar="resnet|other")
    parser.add_argument("--rounds", type=int, default=7, help="how often each shape is measured (7)")
    parser.add_argument(
        "--other-cores",
        type=float,
        default=0.05,
        help="a round in which other programs used more cores than this isn't quiet (0.05)",
    )
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {args.rounds}")
    shapes = SHAPES[args.shapes]
    try:
        about, table = compare(args.shapes, args.rounds, args.other_cores)
    except (LossMismatch, WorkerError) as error:
        sys.exit(f"benchmarks.conv: {error}")
    print(report(shapes, about, table, args.other_cores))


if __name__ == "__main__":
    main()
