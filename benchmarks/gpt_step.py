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
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import cpu_model, total_busy_seconds, tree_busy_seconds
from benchmarks.problem import CONFIGS, save_problem
from benchmarks.protocol import Worker, WorkerError
from benchmarks.report import (
    TOLERANCE,
    Chunk,
    LossMismatch,
    Measurement,
    check_losses,
    quietness,
    summarize,
    table,
)

WARM_UP = 2  # the first step of a run allocates, the second is the first to reuse
STEPS = {"nano": 40, "small": 5, "gpt2": 2, "tiny": 5}  # some two seconds: CPU ticks are 10 ms
LOOK = 0.25  # seconds of looking whether the machine is quiet
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Variant:
    """An implementation: the module that is its worker, what it finds in its environment, its options."""

    label: str
    module: str
    env: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


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


def thread_environment(environ: dict[str, str]) -> dict[str, str]:
    """Two threads for every library, or what OMP_NUM_THREADS says; a variable that is set keeps its value."""
    threads = environ.get("OMP_NUM_THREADS", "2")
    return {name: environ.get(name, threads) for name in THREAD_VARIABLES}


def watch(action: Callable[[], Any]) -> tuple[Any, float | None]:
    """What `action()` returns, and how many cores other programs kept busy meanwhile (None: not known)."""
    begin, all_busy, own_busy = time.perf_counter(), total_busy_seconds(), tree_busy_seconds(os.getpid())
    result = action()
    seconds = time.perf_counter() - begin
    if all_busy is None:
        return result, None
    own_busy = tree_busy_seconds(os.getpid()) - own_busy
    return result, (total_busy_seconds() - all_busy - own_busy) / seconds


def wait_for_quiet(limit: float, deadline: float) -> None:
    """Return once other programs use at most `limit` cores, or when time.monotonic() passes `deadline`."""
    others = watch(lambda: time.sleep(LOOK))[1]
    tick = 0.01 / LOOK  # the least that can be seen
    while others is not None and others > limit + tick and time.monotonic() < deadline:
        others = watch(lambda: time.sleep(LOOK))[1]


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
    environment, deadline = thread_environment(os.environ), time.monotonic() + minutes * 60
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory(prefix="mytorch-gpt-step-") as folder:
        problem = Path(folder) / "problem.npz"
        save_problem(problem, CONFIGS[config])
        try:
            for variant in variants:
                workers.append(
                    Worker(
                        variant.label,
                        variant.module,
                        [config, str(problem), *variant.options],
                        environment | variant.env,
                    )
                )
            measurements = [Measurement(worker.label, worker.read()) for worker in workers]
            difference = 0.0
            while True:
                wait = partial(wait_for_quiet, limit, deadline)
                difference = max(difference, run_round(workers, measurements, steps, before=wait))
                print(progress(measurements, limit), file=sys.stderr)
                quiet = all(len(measured.quiet(limit)) >= chunks for measured in measurements)
                if quiet or time.monotonic() > deadline:
                    break
        finally:
            for worker in workers:
                worker.close()
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
            f"{result['cpu']}; {result['system']}",
            *(f"{row['label']}: {row['version']}; {row['blas']}; {row['threads']} threads" for row in rows),
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
        unfinished = args.out.with_name(args.out.name + ".tmp")
        unfinished.write_text(json.dumps(result, indent=1) + "\n")
        os.replace(unfinished, args.out)


if __name__ == "__main__":
    main()
