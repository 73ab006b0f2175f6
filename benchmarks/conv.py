"""Time convolutions, forward and backward, beside PyTorch eager.

    python -m benchmarks.conv [--shapes resnet|other] [--rounds N]

Each implementation lives in a process of its own; they take turns at every shape, on the same arrays, in
float32. Times are medians over the rounds during which no other program used the processor (all of them where
there is no such round). Exit code 1: the results differ, or a worker ended early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.harness import TurnsParser, Variant, facts_lines, measure, table_lines
from benchmarks.kernel_problem import REPEATS, Job


@dataclass(frozen=True)
class Shape:
    """One layer and its batch of square images."""

    batch: int
    channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int = 1
    groups: int = 1
    backward: bool = True

    @property
    def padding(self) -> int:
        return self.kernel // 2

    def __str__(self) -> str:
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        forward = "" if self.backward else ", forward"
        return (
            f"{self.batch} x {self.channels} x {self.size} x {self.size} -> {self.out_channels}, "
            f"{self.kernel}x{self.kernel} / {self.stride}{groups}{forward}"
        )

    def job(self) -> Job:
        """What is timed: the convolution of an input and a weight."""
        sizes = (
            (self.batch, self.channels, self.size, self.size),
            (self.out_channels, self.channels // self.groups, self.kernel, self.kernel),
        )

        def call(F: Any, tensor: Any, x: Any, w: Any) -> Any:
            return F.conv2d(x, w, None, self.stride, self.padding, 1, self.groups)

        return Job(str(self), sizes, call, backward=self.backward)


SHAPES = {
    "resnet": [
        *(Shape(8, width, size, width, 3) for width, size in ((64, 56), (128, 28), (256, 14), (512, 7))),
        *(Shape(8, width, size, 2 * width, 3, 2) for width, size in ((64, 56), (128, 28), (256, 14))),
        Shape(8, 64, 56, 256, 1),
        Shape(8, 256, 56, 64, 1),
        Shape(8, 64, 56, 128, 1, 2),
        Shape(8, 3, 224, 64, 7, 2),
        Shape(16, 64, 32, 64, 3, backward=False),
    ],
    "other": [
        Shape(32, 16, 32, 16, 3),
        Shape(8, 64, 56, 64, 3, groups=64),
        Shape(8, 128, 28, 128, 3, groups=32),
    ],
    "tiny": [  # for the tests
        Shape(2, 3, 8, 4, 3),
        Shape(2, 4, 8, 4, 3, 2, 2),
        Shape(2, 3, 8, 4, 3, backward=False),
    ],
}


WORKER = "benchmarks.workers.kernels"
VARIANTS = [
    Variant("PyTorch eager", WORKER, options=("torch",)),
    Variant("mytorch", WORKER, options=("mytorch",)),
]
TOLERANCE = 1e-3  # of the sum of three numbers, each of them a sum of up to 100,000 products in float32


def main(argv: list[str] | None = None) -> None:
    parser = TurnsParser("conv", __doc__, 7)
    parser.add_argument("--shapes", default="resnet", choices=SHAPES, metavar="resnet|other")
    args = parser.parse_args(argv)
    shapes = SHAPES[args.shapes]
    about, table = measure("conv", args, VARIANTS, [args.shapes], len(shapes), REPEATS, TOLERANCE)
    print(*facts_lines([v.label for v in VARIANTS], about), "", sep="\n")
    rows = [
        (str(shape), [m.median(args.other_cores) for m in row], row)
        for shape, row in zip(shapes, table, strict=True)
    ]
    title = "forward + backward unless it says forward, ms"
    print(*table_lines(title, rows, 2, args.other_cores), sep="\n")


if __name__ == "__main__":
    main()
