"""Time convolutions, forward and backward, beside PyTorch eager.

    python -m benchmarks.conv [--shapes resnet|other] [--rounds N]

Each implementation lives in a process of its own; they take turns at every shape, on the same arrays, in
float32. Times are medians over the rounds during which no other program used the processor (all of them where
there is no such round). Exit code 1: the results differ, or a worker ended early.
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.conv_problem import SHAPES, Shape
from benchmarks.gpt_step import Variant
from benchmarks.kernel_problem import REPEATS
from benchmarks.machine import cpu_model
from benchmarks.protocol import WorkerError
from benchmarks.report import LossMismatch, Measurement
from benchmarks.turns import TurnsParser, table_lines, take_turns

WORKER = "benchmarks.workers.kernels"
VARIANTS = [
    Variant("PyTorch eager", WORKER, options=("torch",)),
    Variant("mytorch", WORKER, options=("mytorch",)),
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
    rows = [
        (str(shape), [statistics.median(m.times(limit)) for m in measurements], measurements)
        for shape, measurements in zip(shapes, table, strict=True)
    ]
    lines += ["", *table_lines("forward + backward unless it says forward, ms", rows, 2, limit)]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = TurnsParser("conv", __doc__, 7)
    parser.add_argument("--shapes", default="resnet", choices=SHAPES, metavar="resnet|other")
    args = parser.parse_args(argv)
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
