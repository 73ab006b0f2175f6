"""Two libraries in turn, each in a process of its own: quiet turns, medians, a table, JSON.

A benchmark is a module with `jobs(library, *args)`, which its workers call: all that is timed, in order. A
time is the median of the steps of a turn, then of the quiet turns. Exit code 1: results differ, or a worker
failed. The controller imports neither library.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import cpu_model, watch
from benchmarks.processes import Worker

PAUSE = 0.05  # seconds for which the threads of the worker before may spin, waiting for its next job


@dataclass(frozen=True)
class Variant:
    """A library, `mytorch`, `torch` or `jax`, what it finds in its environment, and options of its jobs."""

    label: str
    library: str
    env: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


TORCH, MYTORCH = Variant("PyTorch eager", "torch"), Variant("mytorch", "mytorch")
NUMPY = Variant("NumPy alone", "mytorch", {"USE_FUSED_OPS": "0"})


@dataclass(frozen=True)
class Task:
    """A job in a worker: a step, which returns a number to compare, and an untimed check before the steps;
    times are those of one of the `calls`, or tokens, in a step."""

    step: Callable[[], float]
    check: Callable[[], float] | None = None
    calls: int = 1


@dataclass(frozen=True)
class Plan:
    """How the jobs of a module are measured."""

    module: str
    steps: int  # that are timed in one turn, after `warm_up` others
    warm_up: int
    tolerance: float  # of the numbers that the steps return, |a - b| / max(1, |b|)


class Turn(NamedTuple):
    """ms of a step, the cores that other programs used (None: not known), and the peak of memory in bytes."""

    ms: float
    others: float | None
    peak_memory: int = 0


def figures(turns: list[Turn], limit: float) -> dict:
    """Returns what is written down; others used `limit` cores at most in the turns that count, if any."""
    quiet = [turn.ms for turn in turns if turn.others is None or turn.others <= limit]
    times = quiet or [turn.ms for turn in turns]
    return {
        "ms": statistics.median(times), "span_ms": [min(times), max(times)], "quiet": len(quiet),
        "all": len(turns), "peak_memory": max(turn.peak_memory for turn in turns),
        "turns": [turn[:2] for turn in turns],
    }


class Turns:
    """Workers, by label, which take turns at the jobs of a plan; ends the program where one fails."""

    def __init__(self, plan: Plan, workers: dict[str, Worker]):
        self.plan, self.workers, self.largest_difference = plan, workers, 0.0

    def ask(self, label: str, question: dict) -> Any:
        """Returns the result of a worker."""
        answer = self.workers[label].ask(question)
        if "error" in answer:
            sys.exit(f"benchmarks.{self.plan.module}: {label}: {answer['error']}")
        return answer["result"]

    def take(self, job: int, row: dict[str, list[Turn]], backwards: bool) -> None:
        """Lets each worker do a job, and compares their numbers with those of the first."""
        values, question = {}, {"do": "run", "job": job}
        question |= {"steps": self.plan.steps, "warm_up": self.plan.warm_up}
        for label in list(row)[:: -1 if backwards else 1]:  # to and fro, because the clock rate drifts
            time.sleep(PAUSE)
            answer, others = watch(lambda who=label: self.ask(who, question))
            row[label].append(Turn(statistics.median(answer["ms"]), others, answer["peak_memory"]))
            values[label] = answer["values"]
        for label in row:
            self.compare(label, values[label], values[next(iter(row))])

    def compare(self, label: str, values: list[float], reference: list[float]) -> None:
        for step, (a, b) in enumerate(zip(values, reference, strict=True)):
            difference = abs(a - b) / max(1.0, abs(b))
            if not difference <= self.plan.tolerance:  # also if it is NaN
                sys.exit(
                    f"benchmarks.{self.plan.module}: {label}: {a:.7f} instead of {b:.7f} at step {step}, "
                    f"allowed {self.plan.tolerance:.0e}"
                )
            self.largest_difference = max(difference, self.largest_difference)


def parser(module: str, about: str, rounds: int) -> argparse.ArgumentParser:
    """Returns the command line of a benchmark, with the default of `rounds`."""
    found = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=about.splitlines()[0])
    add = found.add_argument
    add("--rounds", type=positive, default=rounds, metavar="N", help="turns of each (%(default)s)")
    add("--other-cores", type=float, default=0.05, metavar="CORES",
        help="a turn in which other programs used more isn't quiet (%(default)s)")
    add("--out", type=Path, metavar="FILE", help="write all figures to this JSON file")
    return found


def positive(text: str) -> int:
    """Reads a number of at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def measure(
    plan: Plan, variants: list[Variant], args: list[str], jobs: list[tuple[str, str]],
    options: argparse.Namespace,
) -> dict:
    """Returns all figures; ends the program where a worker fails or the results differ.

    Args:
        args: of the module's `jobs`, whose names and sizes are `jobs`.
        options: of `parser`.
    """
    rows: list[dict[str, list[Turn]]] = [{variant.label: [] for variant in variants} for _ in jobs]
    with ExitStack() as stack:
        workers = {}
        for v in variants:
            worker = Worker(["benchmarks.worker", v.library, plan.module, *args, *v.options], v.env)
            workers[v.label] = stack.enter_context(closing(worker))
        turns = Turns(plan, workers)
        about = {label: turns.ask(label, {"do": "about"}) for label in workers}
        for number in range(options.rounds):
            for job, row in enumerate(rows):
                turns.take(job, row, backwards=number % 2 == 1)
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "implementations": about,
        "largest_difference": turns.largest_difference,
        "rows": [
            {"name": name, "size": size, "by": {k: figures(t, options.other_cores) for k, t in row.items()}}
            for (name, size), row in zip(jobs, rows, strict=True)
        ],
    }


def show(title: str, result: dict, shown: str, options: argparse.Namespace) -> None:
    """Prints the figures with what they depend on, and writes them to `--out`."""
    print(f"{title}; the results differ by {result['largest_difference']:.1e} at most")
    print(f"{result['cpu']}, {result['date']}")
    for label, about in result["implementations"].items():
        print(f"{label}: {about['version']}; {about['threads']} threads")
    rule = f"Turns with more than {options.other_cores:g} cores of others are left out, unless all are."
    print("", shown, rule, sep="\n")
    if options.out:
        write(options.out, result)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns it in Markdown, its columns aligned: the first to the left, the others to the right."""
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    text = ""
    for first, *others in (head, rule, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text += f"| {' | '.join([first.ljust(widths[0]), *cells])} |\n"
    return text


def write(path: Path, what: str | dict) -> None:
    """Writes a text or JSON file, which is whole or as it was at any moment."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(what if isinstance(what, str) else json.dumps(what, indent=1) + "\n", "utf-8")
    os.replace(unfinished, path)


def by_job(result: dict) -> str:
    """Returns a table with a row for each job; the ratios are those of the other times to the first."""
    rows = []
    for row in result["rows"]:
        first, *others = times = [by["ms"] for by in row["by"].values()]
        cells = [row["name"], row["size"], *(f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}" for ms in times)]
        ratios = ", ".join(f"{ms / first:.2f}" for ms in others)
        rows.append([*cells, ratios, quiet(row["by"].values())])
    return table(["", "size", *result["implementations"], "ratios", "quiet turns"], rows)


def by_library(result: dict, what: str, tokens: int = 1) -> str:
    """Returns a table with a row for each implementation of the only job, of so many tokens."""
    first, rows = next(iter(result["rows"][0]["by"].values())), []
    for label, by in result["rows"][0]["by"].items():
        low, high = by["span_ms"]
        rows.append([
            label, f"{by['ms']:.2f}", f"{low:.2f} – {high:.2f}", f"{tokens / by['ms'] * 1e3:,.0f}",
            f"{by['ms'] / first['ms']:.2f}", f"{by['peak_memory'] / 2**20:,.0f} MiB", quiet([by]),
        ])
    head = ["", f"ms/{what}", "fastest – slowest", "tokens/s", "ratio", "peak RSS", "quiet turns"]
    return table(head, rows)


def quiet(figures: Any) -> str:
    """Returns how many turns of all were quiet, where they were fewest."""
    fewest = min(figures, key=lambda by: by["quiet"])
    return f"{fewest['quiet']} of {fewest['all']}"
