"""Time every kernel for the CPU, forward and backward, beside PyTorch eager and beside NumPy alone.

    python -m benchmarks.kernels [--rounds N] [--out FILE] [--readme]

Each implementation lives in a process of its own; they take turns at every kernel, on the same arrays, in
float32. Times are medians over the rounds during which no other program used the processor (all of them where
there is no such round). --out writes the figures to a JSON file; --readme writes the table from
benchmarks/results/kernels-cpu.json into docs/kernels.md. Exit code 1: the results differ, or a
worker ended early.
"""

from __future__ import annotations

import datetime
import json
import platform
from pathlib import Path

from benchmarks.harness import Measurement, TurnsParser, Variant, cpu_model, measure, write_json
from benchmarks.kernel_problem import JOBS, REPEATS

ROOT = Path(__file__).parent.parent
RESULTS, README = ROOT / "benchmarks" / "results" / "kernels-cpu.json", ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- kernels: written by python -m benchmarks.kernels --readme -->\n", "<!-- end of kernels -->"
WORKER = "benchmarks.workers.kernels"
VARIANTS = [
    Variant("PyTorch eager", WORKER, options=("torch",)),
    Variant("mytorch", WORKER, options=("mytorch",)),
    Variant("NumPy alone", WORKER, {"USE_FUSED_OPS": "0"}, ("mytorch",)),
]
TOLERANCE = 2e-3  # of a sum of a few results, which may be sums of thousands of products themselves


def summarize(table: list[list[Measurement]], about: list[dict], limit: float) -> dict:
    """All figures, as they are written to JSON."""
    rows = []
    for job, measurements in zip(JOBS, table, strict=True):
        times = [measured.median(limit) for measured in measurements]
        rows.append({
            "kernel": job.name,
            "size": str(job),
            "ms": dict(zip((v.label for v in VARIANTS), times, strict=True)),
            "quiet_rounds": min(len(measured.quiet(limit)) for measured in measurements),
            "rounds": len(measurements[0].chunks),
        })  # fmt: skip
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "implementations": {v.label: facts for v, facts in zip(VARIANTS, about, strict=True)},
        "kernels": rows,
    }


def markdown(result: dict) -> str:
    """The README's table, from the figures."""
    peers = result["implementations"]
    threads = peers["PyTorch eager"]["threads"]
    lines = [
        f"{result['cpu']}, {threads} threads, float32, forward and backward in milliseconds; "
        f"{peers['PyTorch eager']['version']}, {peers['mytorch']['version'].partition(', ')[2]}, "
        f"{result['date']}.",
        "",
        "| kernel | size | PyTorch eager | mytorch | ratio | without kernels |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in result["kernels"]:
        theirs, ours, numpys = (row["ms"][v.label] for v in VARIANTS)
        lines.append(
            f"| `{row['kernel']}` | {row['size']} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} | "
            f"{numpys:.2f} |"
        )
    return "\n".join(lines) + "\n"


def in_readme(text: str, table: str) -> str:
    """The README with this table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/kernels.md has no lines {BEGIN.strip()!r} and {END!r} for the table")
    return before + begin + table + end + after


def main(argv: list[str] | None = None) -> None:
    parser = TurnsParser("kernels", __doc__, 9)
    parser.add_argument("--out", type=Path, help="write all figures to this JSON file")
    parser.add_argument(
        "--readme", action="store_true", help="write the table into docs/kernels.md; measure nothing"
    )
    args = parser.parse_args(argv)
    if args.readme:
        text = in_readme(README.read_text("utf-8"), markdown(json.loads(RESULTS.read_text("utf-8"))))
        README.write_text(text, "utf-8")
        return
    about, table = measure("kernels", args, VARIANTS, ["kernels"], len(JOBS), REPEATS, TOLERANCE)
    result = summarize(table, about, args.other_cores)
    print(markdown(result))
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
