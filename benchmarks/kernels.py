"""Time every kernel for the CPU, forward and backward, beside PyTorch eager and beside NumPy alone.

    python -m benchmarks.kernels [--kernels NAME...] [--rounds N] [--out FILE] [--readme]

The libraries take turns at every kernel, on the same arrays, in float32. A time is the median of a turn's
steps, then of the quiet turns. --readme writes the table of benchmarks/results/kernels-cpu.json into
docs/kernels.md, and measures nothing. Exit code 1: the results differ, or a worker failed.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import kernel_jobs
from benchmarks.gpt import Config
from benchmarks.harness import MYTORCH, NUMPY, TORCH, Plan, Task, by_job, measure, parser, show

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "kernels-cpu.json", ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- kernels: written by python -m benchmarks.kernels --readme -->\n", "<!-- end of kernels -->"
# dropout is random, and convolutions are those of benchmarks.conv
JOBS = [
    job
    for job in kernel_jobs.jobs(Config(6, 6, 384, 256, 4, 50304), images=(16, 64, 32, 32))
    if job.name not in ("dropout", "conv1d", "conv2d")
]


def jobs(library: Any, *names: str) -> list[Callable[[], Task]]:
    """Returns what a worker runs."""
    return [partial(kernel_jobs.task, library, job) for job in JOBS if job.name in names]


def published(page: str, result: dict) -> str:
    """Returns the page with the table of these figures between its marks; ValueError without marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    versions = "; ".join({about["version"]: 0 for about in result["implementations"].values()})
    said = f"{result['cpu']}, float32, forward and backward in milliseconds; {versions}; {result['date']}."
    return f"{before}{BEGIN}{said}\n\n{by_job(result)}{END}{after}"


def main(argv: list[str] | None = None) -> None:
    known = [job.name for job in JOBS]
    options = parser("kernels", __doc__, 9)
    add = options.add_argument
    add("--kernels", nargs="+", default=known, choices=known, metavar="NAME", help="only these")
    add("--readme", action="store_true", help="write the table into docs/kernels.md")
    args = options.parse_args(argv)
    if args.readme:
        result = json.loads(RESULTS.read_text("utf-8"))
        PAGE.write_text(published(PAGE.read_text("utf-8"), result), "utf-8")
        return
    rows = [(job.name, job.size) for job in JOBS if job.name in args.kernels]
    plan = Plan("kernels", steps=10, warm_up=5, tolerance=2e-3)  # of sums of a few results
    result = measure(plan, [TORCH, MYTORCH, NUMPY], args.kernels, rows, args)
    show("Forward and backward, ms", result, by_job(result), args)


if __name__ == "__main__":
    main()
