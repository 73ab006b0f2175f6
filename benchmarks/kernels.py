"""Time every kernel for the CPU, forward and backward, beside PyTorch eager and beside NumPy alone.

    python -m benchmarks.kernels [--kernels NAME...] [--rounds N] [--out FILE]

The libraries take turns at every kernel, on the same arrays, in float32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import kernel_jobs
from benchmarks.gpt import Config
from benchmarks.harness import MYTORCH, NUMPY, TORCH, Plan, Task, by_job, measure, parser, show

JOBS = [
    job
    for job in kernel_jobs.jobs(Config(6, 6, 384, 256, 4, 50304), images=(16, 64, 32, 32))
    if job.name not in ("dropout", "conv2d")  # dropout is random
] + kernel_jobs.convolutions()


def jobs(library: Any, *names: str) -> list[Callable[[], Task]]:
    return [partial(kernel_jobs.task, library, job) for job in JOBS if job.name in names]


def main(argv: list[str] | None = None) -> None:
    known = list(dict.fromkeys(job.name for job in JOBS))
    options = parser("kernels", __doc__, 9)
    options.add_argument("--kernels", nargs="+", default=known, choices=known, metavar="NAME")
    args = options.parse_args(argv)
    rows = [(job.name, job.size) for job in JOBS if job.name in args.kernels]
    plan = Plan("kernels", steps=10, warm_up=5, tolerance=2e-3)  # of sums of a few results
    result = measure(plan, [TORCH, MYTORCH, NUMPY], args.kernels, rows, args)
    show("Forward and backward, ms", result, by_job(result), args)


if __name__ == "__main__":
    main()
