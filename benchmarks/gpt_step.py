"""Time a whole GPT training step of mytorch beside PyTorch eager.

    python -m benchmarks.gpt_step --config nano|small|gpt2 [--variants] [--chunks N] [--steps K] [--out FILE]

torch is PyTorch eager, torch-tuned the same with torch.compile, the fused AdamW and oneMKL asked for AVX-512;
mytorch-numpy is mytorch without its compiled kernels.

Each implementation lives in a process of its own; they take turns, a chunk of steps each, on the same weights
and batches. A step is forward, cross entropy, backward, gradient clipping and AdamW, in float32. Every chunk
starts from the initial weights, since rounding grows in a long run until losses differ without a fault. Times
are means over a chunk, then medians over the chunks during which no other program used the processor.
Exit code 1: the losses differ, or a worker ended early.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.harness import (
    Chunk,
    LossMismatch,
    Measurement,
    Variant,
    Worker,
    WorkerError,
    cpu_model,
    facts_lines,
    started,
    wait_for_quiet,
    watch,
    write_json,
)
from benchmarks.problem import CONFIGS, save_problem

WARM_UP = 2  # the first step of a run allocates, the second is the first to reuse
STEPS = {"nano": 40, "small": 5, "gpt2": 2, "tiny": 5}  # some two seconds: CPU ticks are 10 ms
TOLERANCE = 1e-4  # of losses


VARIANTS = {
    "torch": Variant("PyTorch eager", "benchmarks.workers.torch_gpt"),
    "torch-tuned": Variant(
        "PyTorch, tuned",
        "benchmarks.workers.torch_gpt",
        {"MKL_ENABLE_INSTRUCTIONS": "AVX512"},
        ("--tuned",),
    ),
    "mytorch": Variant("mytorch", "benchmarks.workers.mytorch_gpt"),
    "mytorch-numpy": Variant(
        "mytorch, NumPy alone", "benchmarks.workers.mytorch_gpt", {"USE_FUSED_OPS": "0"}
    ),
    "mytorch-untuned": Variant(
        "mytorch, MYTORCH_TUNE=0", "benchmarks.workers.mytorch_gpt", {"MYTORCH_TUNE": "0"}
    ),
}


def run_chunk(worker: Worker, steps: int) -> tuple[Chunk, dict]:
    """A fresh start, WARM_UP steps, then `steps` timed ones; the answer holds the losses of all of them."""
    warm = worker.run(WARM_UP, restart=True)
    timed, others = watch(lambda: worker.run(steps))
    return Chunk(statistics.fmean(timed["ms"]), others), timed | {"losses": warm["losses"] + timed["losses"]}


def run_round(workers: list[Worker], measurements: list[Measurement], steps: int, before: Callable) -> float:
    """`before()` and a chunk, for every worker; returns the largest difference of losses to the first's."""
    losses = {}
    turns = list(enumerate(zip(workers, measurements, strict=True)))
    backwards = len(measurements[0].chunks) % 2 == 1  # to and fro, because the clock rate drifts
    for i, (worker, measured) in reversed(turns) if backwards else turns:
        before()
        chunk, answer = run_chunk(worker, steps)
        measured.chunks.append(chunk)
        measured.peak_memory = max(measured.peak_memory, answer["peak_memory"])
        losses[i] = answer["losses"]
    first = measurements[0].label
    return max(check_losses(measured.label, losses[i], first, losses[0]) for i, (_, measured) in turns)


def progress(measurements: list[Measurement], limit: float) -> str:
    """The newest chunk of each in a line, so that a long run can be watched."""
    newest = [(measured.label, measured.chunks[-1]) for measured in measurements]
    return ", ".join(
        f"{label} {chunk.ms:.1f} ms{'' if chunk.is_quiet(limit) else ' (disturbed)'}"
        for label, chunk in newest
    )


def compare(
    variants: list[Variant], config: str, chunks: int, steps: int, limit: float, minutes: float
) -> dict:
    """Let the variants take turns until each has `chunks` quiet chunks or time is up; returns all figures.

    A chunk is quiet when other programs used at most `limit` cores. Raises LossMismatch, WorkerError.
    """
    deadline = time.monotonic() + minutes * 60
    wait = partial(wait_for_quiet, limit, deadline)
    with tempfile.TemporaryDirectory(prefix="mytorch-gpt-step-") as folder:
        problem = Path(folder) / "problem.npz"
        save_problem(problem, CONFIGS[config])
        with started(variants, [config, str(problem)]) as workers:
            measurements = [Measurement(worker.label, worker.read()) for worker in workers]
            difference, is_over = 0.0, False
            while not is_over:
                difference = max(difference, run_round(workers, measurements, steps, before=wait))
                print(progress(measurements, limit), file=sys.stderr)
                quiet = all(len(measured.quiet(limit)) >= chunks for measured in measurements)
                is_over = quiet or time.monotonic() > deadline
    rows = summarize(measurements, CONFIGS[config].tokens, limit)
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return {
        "config": config,
        "sizes": asdict(CONFIGS[config]),
        "steps": steps,
        "quiet": quiet,
        "cpu": cpu_model(),
        "system": system,
        "largest_loss_difference": difference,
        "quietness": quietness(rows, chunks, limit),
        "rows": rows,
    }


def loss_differences(losses: list[float], reference: list[float]) -> list[float]:
    """|a - b| / max(1, |b|) of each step, which is the smaller of the absolute and the relative difference.

    Infinite where a loss is NaN or infinite. Raises ValueError where the numbers of steps differ.
    """
    return [
        abs(a - b) / max(1.0, abs(b)) if math.isfinite(a) and math.isfinite(b) else math.inf
        for a, b in zip(losses, reference, strict=True)
    ]


def check_losses(label: str, losses: list[float], reference_label: str, reference: list[float]) -> float:
    """The largest difference; raises LossMismatch, naming the first step, where it is above TOLERANCE."""
    differences = loss_differences(losses, reference)
    for step, difference in enumerate(differences):
        if difference > TOLERANCE:
            raise LossMismatch(
                f"the losses differ by {difference:.1e} at step {step}, "
                f"allowed {TOLERANCE:.0e}: {label} {losses[step]:.7f}, "
                f"{reference_label} {reference[step]:.7f}"
            )
    return max(differences)


def summarize(measurements: list[Measurement], tokens: int, limit: float) -> list[dict]:
    """One row of figures a measurement; `ratio` is to the first one's time."""
    medians = [measured.median(limit) for measured in measurements]
    return [
        {
            "label": measured.label,
            **measured.about,
            "ms": ms,
            "fastest_ms": min(measured.times(limit)),
            "slowest_ms": max(measured.times(limit)),
            "tokens_per_second": tokens / ms * 1e3,
            "ratio": ms / medians[0],
            "peak_memory": measured.peak_memory,
            "quiet_chunks": len(measured.quiet(limit)),
            "all_chunks": len(measured.chunks),
            "chunks": [asdict(chunk) for chunk in measured.chunks],
        }
        for measured, ms in zip(measurements, medians, strict=True)
    ]


def table(rows: list[dict]) -> str:
    """The rows as text, one line each."""
    lines = [
        f"{'':<26}{'ms/step':>9}{'fastest – slowest':>20}{'tokens/s':>11}{'ratio':>7}"
        f"{'peak RSS':>11}{'chunks':>12}"
    ]
    for row in rows:
        span = f"{row['fastest_ms']:.1f} – {row['slowest_ms']:.1f}"
        chunks = f"{row['quiet_chunks']} of {row['all_chunks']}"
        lines.append(
            f"{row['label']:<26}{row['ms']:>9.1f}{span:>20}{row['tokens_per_second']:>11,.0f}"
            f"{row['ratio']:>7.2f}{row['peak_memory'] / 2**20:>7,.0f} MiB{chunks:>12}"
        )
    return "\n".join(lines)


def quietness(rows: list[dict], wanted: int, limit: float) -> str:
    """A sentence on the discarded chunks; it begins with NOT QUIET where the figures can't be trusted."""
    if any(chunk["other_cores"] is None for row in rows for chunk in row["chunks"]):
        return "NOT KNOWN TO BE QUIET: this system has no /proc/stat, so no chunk was discarded."
    total = sum(row["all_chunks"] for row in rows)
    discarded = total - sum(row["quiet_chunks"] for row in rows)
    said = f"{discarded} of {total} chunks discarded: others used more than {limit:g} cores during them."
    if all(row["quiet_chunks"] >= wanted for row in rows):
        return said
    busy = statistics.median(chunk["other_cores"] for row in rows for chunk in row["chunks"])
    used_all = [row["label"] for row in rows if not row["quiet_chunks"]]
    missing = f" No chunk of {', '.join(used_all)} was quiet: all of them are counted." if used_all else ""
    return (
        f"NOT QUIET: {said} That leaves fewer than the {wanted} quiet ones a row that were wanted; "
        f"others used {busy:.2f} cores in the median.{missing} Measure again when the machine is idle."
    )


def report(result: dict) -> str:
    """The text that is printed."""
    rows = result["rows"]
    losses = (
        f"Losses agree to {TOLERANCE:.0e}: the largest difference is "
        f"{result['largest_loss_difference']:.1e}, over {WARM_UP + result['steps']} steps a chunk."
    )
    memory = (
        "Peak RSS is that of the steps."
        if all(row["peak_memory_without_start"] for row in rows)
        else "Peak RSS is that of the whole process: this system can't reset it."
    )
    return "\n".join(
        [
            f"GPT-2 {result['config']}: {CONFIGS[result['config']]}; float32",
            *facts_lines([row["label"] for row in rows], rows),
            "",
            table(rows),
            "",
            f"Ratio: time as a fraction of {rows[0]['label']}'s. "
            f"Chunks: {result['steps']} steps each, the quiet ones of all.",
            losses,
            memory,
            result["quietness"],
        ]
    )


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpt_step", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--config", default="nano", choices=CONFIGS, metavar="nano|small|gpt2")
    parser.add_argument(
        "--variants",
        nargs="*",
        default=["torch", "mytorch"],
        metavar="NAME",
        help=f"what to run, the reference first; no name means all: {', '.join(VARIANTS)}",
    )
    parser.add_argument("--chunks", type=int, default=10, help="quiet chunks wanted of each (10)")
    parser.add_argument("--steps", type=int, help="timed steps in a chunk (two seconds of PyTorch or more)")
    parser.add_argument(
        "--other-cores",
        type=float,
        default=0.05,
        help="discard a chunk when other programs used more cores than this (0.05)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=10,
        help="take what there is when the machine was not quiet for so long (10)",
    )
    parser.add_argument("--out", type=Path, help="write all figures to this JSON file")
    args = parser.parse_args(argv)
    args.variants = args.variants or list(VARIANTS)
    unknown = [name for name in args.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"--variants knows {', '.join(VARIANTS)}; got {', '.join(unknown)}")
    args.steps = STEPS[args.config] if args.steps is None else args.steps
    if args.chunks < 1 or args.steps < 1:
        parser.error(f"--chunks and --steps must be at least 1; got {args.chunks} and {args.steps}")
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    variants = [VARIANTS[name] for name in args.variants]
    try:
        result = compare(variants, args.config, args.chunks, args.steps, args.other_cores, args.minutes)
    except (LossMismatch, WorkerError) as error:
        sys.exit(f"benchmarks.gpt_step: {error}")
    print(report(result))
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
