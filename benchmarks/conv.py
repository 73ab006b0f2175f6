"""Time forward and backward of convolutions beside PyTorch eager.

    python -m benchmarks.conv [--shapes resnet|other] [--rounds N]

Each implementation lives in a process of its own; they take turns at every shape, on the same arrays, in
float32. Times are medians over the rounds during which no other program used the processor (all of them where
there is no such round). Exit code 1: the results differ, or a worker ended early.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.conv_problem import REPEATS, SHAPES, Shape
from benchmarks.gpt_step import Variant
from benchmarks.machine import cpu_model
from benchmarks.protocol import WorkerError
from benchmarks.report import LossMismatch, Measurement
from benchmarks.turns import take_turns

VARIANTS = [
    Variant("PyTorch eager", "benchmarks.workers.torch_conv"),
    Variant("mytorch", "benchmarks.workers.mytorch_conv"),
]
TOLERANCE = 1e-3  # of the sum of three numbers, each of them a sum of up to 100,000 products in float32


def report(shapes: list[Shape], about: list[dict], table: list[list[Measurement]], limit: float) -> str:
    """The text that is printed."""
    lines = [
        cpu_model(),
        *(
            f"{variant.label}: {facts['version']}; {facts['blas']}; {facts['threads']} threads"
            for variant, facts in zip(VARIANTS, about, strict=True)
        ),
    ]
    lines += [
        "",
        f"{'forward + backward, ms':<46}"
        + "".join(f"{variant.label:>16}" for variant in VARIANTS)
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
        about, table = take_turns(
            VARIANTS, [args.shapes], len(shapes), args.rounds, args.other_cores, REPEATS, TOLERANCE
        )
    except (LossMismatch, WorkerError) as error:
        sys.exit(f"benchmarks.conv: {error}")
    print(report(shapes, about, table, args.other_cores))


if __name__ == "__main__":
    main()
