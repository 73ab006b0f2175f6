"""Time convolutions, forward and backward, beside PyTorch eager.

    python -m benchmarks.conv [--shapes resnet|other] [--rounds N] [--out FILE]

The libraries take turns at every shape, on the same arrays, in float32. A time is the median of a turn's
steps, then of the quiet turns. Exit code 1: the results differ, or a worker failed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from benchmarks.harness import MYTORCH, TORCH, Plan, Task, by_job, measure, parser, show
from benchmarks.kernel_jobs import Job, task


class Shape(NamedTuple):
    """One layer and its batch of square images."""

    batch: int
    channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int = 1
    groups: int = 1
    no_grad: bool = False

    @property
    def name(self) -> str:
        more = f", {self.groups} groups" if self.groups > 1 else ", forward" if self.no_grad else ""
        return f"{self.kernel}x{self.kernel} / {self.stride} to {self.out_channels}{more}"

    def job(self) -> Job:
        """Returns the convolution of an input and a weight."""
        x = self.batch, self.channels, self.size, self.size
        w = self.out_channels, self.channels // self.groups, self.kernel, self.kernel
        options = None, self.stride, self.kernel // 2, 1, self.groups
        return Job("conv2d", (x, w), options=options, no_grad=self.no_grad)


SHAPES = {
    "resnet": [
        *(Shape(8, width, size, width, 3) for width, size in ((64, 56), (128, 28), (256, 14), (512, 7))),
        *(Shape(8, width, size, 2 * width, 3, 2) for width, size in ((64, 56), (128, 28), (256, 14))),
        Shape(8, 64, 56, 256, 1),
        Shape(8, 256, 56, 64, 1),
        Shape(8, 64, 56, 128, 1, 2),
        Shape(8, 3, 224, 64, 7, 2),
        Shape(16, 64, 32, 64, 3, no_grad=True),
    ],
    "other": [Shape(32, 16, 32, 16, 3), Shape(8, 64, 56, 64, 3, 1, 64), Shape(8, 128, 28, 128, 3, 1, 32)],
    "tiny": [Shape(2, 3, 8, 4, 3), Shape(2, 4, 8, 4, 3, 2, 2), Shape(2, 3, 8, 4, 3, no_grad=True)],
}


def jobs(library: Any, shapes: str) -> list[Callable[[], Task]]:
    """Returns what a worker runs."""
    return [partial(task, library, shape.job()) for shape in SHAPES[shapes]]


def main(argv: list[str] | None = None) -> None:
    options = parser("conv", __doc__, 7)
    options.add_argument("--shapes", default="resnet", choices=SHAPES, metavar="resnet|other")
    args = options.parse_args(argv)
    rows = [(shape.name, shape.job().size) for shape in SHAPES[args.shapes]]
    plan = Plan("conv", steps=10, warm_up=5, tolerance=1e-3)  # sums of up to 100,000 products in float32
    result = measure(plan, [TORCH, MYTORCH], [args.shapes], rows, args)
    show("Forward and backward unless it says forward, ms", result, by_job(result), args)


if __name__ == "__main__":
    main()
