"""Two libraries in turn, each in a process of its own: quiet turns, medians, a table, JSON.

A benchmark is a module with `jobs(library, *args)`, which its workers call: all that is timed, in order. The
controller imports neither library.
"""

import argparse
import datetime
import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import cpu_model, watch
from benchmarks.processes import Worker
from benchmarks.tables import table, write_json

PAUSE = 0.05  # seconds for which the threads of the worker before may spin, waiting for its next job


@dataclass(frozen=True)
class Variant:
    """A library, `mytorch` or `torch`, what it finds in its environment, and options of its jobs."""

    label: str
    library: str
    env: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


TORCH, MYTORCH = Variant("PyTorch eager", "torch"), Variant("mytorch", "mytorch")
NUMPY = Variant("NumPy alone", "mytorch", {"USE_FUSED_OPS": "0"})


@dataclass(frozen=True)
class Task:
    """A job in a worker: a step, which returns a number to compare, and an untimed check before the steps."""

    step: Callable[[], float]
    check: Callable[[], float] | None = None


@dataclass(frozen=True)
class Plan:
    """How the jobs of a module are measured."""

    module: str
    steps: int  # that are timed in one turn, after `warm_up` others
    warm_up: int
    tolerance: float  # of the numbers that the steps return, |a - b| / max(1, |b|)
    fresh: bool = False  # a job is made anew for each turn


class Failure(RuntimeError):
    """A worker failed, or the numbers of two libraries differ, so their times can't be compared."""


@dataclass
class Measurement:
    """The turns of one library at one job, and the cores that others used (None: the system doesn't tell)."""

    ms: list[float] = field(default_factory=list)
    other_cores: list[float | None] = field(default_factory=list)
    peak_memory: int = 0

    def quiet(self, limit: float) -> list[float]:
        """Returns the times of the turns in which others used at most `limit` cores."""
        turns = zip(self.ms, self.other_cores, strict=True)
        return [ms for ms, cores in turns if cores is None or cores <= limit]

    def figures(self, limit: float) -> dict:
        """Returns what is written down; the times that count are those of quiet turns, or all if none is."""
        times = self.quiet(limit) or self.ms
        return {
            "ms": statistics.median(times),
            "span_ms": [min(times), max(times)],
            "quiet": len(self.quiet(limit)),
            "all": len(self.ms),
            "peak_memory": self.peak_memory,
            "turns": [list(turn) for turn in zip(self.ms, self.other_cores, strict=True)],
        }


class Turns:
    """The workers of a plan's variants, which take turns at its jobs."""

    def __init__(self, plan: Plan, variants: list[Variant], args: list[str], stack: ExitStack):
        self.plan, self.labels, self.workers = plan, [variant.label for variant in variants], []
        for v in variants:
            command = ["benchmarks.worker", v.library, plan.module, *args, *v.options]
            self.workers.append(stack.enter_context(closing(Worker(command, v.env))))

    def ask(self, i: int, question: dict) -> Any:
        """Returns the result of worker i; raises Failure if there is none."""
        answer = self.workers[i].ask(question)
        if "error" in answer:
            raise Failure(f"{self.labels[i]}: {answer['error']}")
        return answer["result"]

    def take(self, job: int, row: list[Measurement], backwards: bool) -> float:
        """Lets each worker do a job; returns the largest difference of their numbers."""
        plan, values = self.plan, {}
        question = {"steps": plan.steps, "warm_up": plan.warm_up, "fresh": plan.fresh}
        order = list(range(len(row)))[:: -1 if backwards else 1]  # to and fro, because the clock rate drifts
        for i in order:
            time.sleep(PAUSE)
            answer, others = watch(lambda i=i: self.ask(i, {"do": "run", "job": job, **question}))
            row[i].ms.append(statistics.median(answer["ms"]))
            row[i].other_cores.append(others)
            row[i].peak_memory = max(row[i].peak_memory, answer["peak_memory"])
            values[i] = answer["values"]
        return max(self._difference(i, values[i], values[0]) for i in order)

    def _difference(self, i: int, values: list[float], reference: list[float]) -> float:
        differences = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(values, reference, strict=True)]
        for step, difference in enumerate(differences):
            if not difference <= self.plan.tolerance:  # also if it is NaN
                raise Failure(
                    f"the results differ by {difference:.1e} at step {step}, "
                    f"allowed {self.plan.tolerance:.0e}: {self.labels[i]} {values[step]:.7f}, "
                    f"{self.labels[0]} {reference[step]:.7f}"
                )
        return max(differences)


def parser(module: str, about: str, turns: int, name: str = "--rounds") -> argparse.ArgumentParser:
    """Returns the command line of a benchmark, with the default of `turns`."""
    found = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=about.splitlines()[0])
    add = found.add_argument
    add(name, dest="turns", type=positive, default=turns, metavar="N", help="turns of each (%(default)s)")
    add("--other-cores", type=float, default=0.05, metavar="CORES",
        help="a turn in which other programs used more isn't quiet (%(default)s)")  # fmt: skip
    add("--out", type=Path, metavar="FILE", help="write all figures to this JSON file")
    return found


def positive(text: str) -> int:
    """Reads a number of at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def measure(
    plan: Plan, variants: list[Variant], args: list[str], jobs: list[tuple[str, str]],
    options: argparse.Namespace, minutes: float | None = None,
) -> dict:  # fmt: skip
    """Returns all figures; ends the program where a worker fails or the results differ.

    Args:
        args: of the module's `jobs`, whose names and sizes are `jobs`.
        options: of `parser`; with `minutes` that many quiet turns are wanted, unless the time is over before.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    table, limit, difference = [[Measurement() for _ in variants] for _ in jobs], options.other_cores, 0.0

    def is_over() -> bool:
        if deadline is None:
            return len(table[0][0].ms) >= options.turns
        quiet = min(len(m.quiet(limit)) for row in table for m in row)
        return quiet >= options.turns or time.monotonic() > deadline

    try:
        with ExitStack() as stack:
            turns = Turns(plan, variants, args, stack)
            about = {label: turns.ask(i, {"do": "about"}) for i, label in enumerate(turns.labels)}
            for number in itertools.count():
                for i, row in enumerate(table):
                    difference = max(difference, turns.take(i, row, backwards=number % 2 == 1))
                if is_over():
                    break
    except Failure as error:
        sys.exit(f"benchmarks.{plan.module}: {error}")
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "implementations": about,
        "largest_difference": difference,
        "rows": [
            {"name": name, "size": size, "by": dict(zip(about, [m.figures(limit) for m in row], strict=True))}
            for (name, size), row in zip(jobs, table, strict=True)
        ],
    }


def show(title: str, result: dict, shown: str, options: argparse.Namespace) -> None:
    """Prints the figures with what they depend on, and writes them to `--out`."""
    print(title, f"{result['cpu']}, {result['date']}", sep="\n")
    for label, about in result["implementations"].items():
        print(f"{label}: {about['version']}; {about['threads']} threads{about['kernels']}")
    rule = f"Turns with more than {options.other_cores:g} cores of others are left out, unless all are."
    print("", shown, rule, sep="\n")
    if options.out:
        write_json(options.out, result)


def by_job(result: dict, digits: int = 2, figure: Callable[[dict, float], float] = lambda _, ms: ms) -> str:
    """Returns a table of a figure by job; the ratio is the second figure by the first."""
    rows = []
    for row in result["rows"]:
        values = [figure(row, by["ms"]) for by in row["by"].values()]
        cells = [row["name"], row["size"], *(f"{value:.{digits}f}" for value in values)]
        rows.append([*cells, f"{values[1] / values[0]:.2f}", _quiet(row["by"].values())])
    return table(["", "size", *result["implementations"], "ratio", "quiet turns"], rows)


def by_library(result: dict, what: str, count: int, tokens: int) -> str:
    """Returns a table with a row for each implementation of the only job, of `count` steps or tokens."""
    first, rows = next(iter(result["rows"][0]["by"].values())), []
    for label, by in result["rows"][0]["by"].items():
        low, high = (limit / count for limit in by["span_ms"])
        rows.append([
            label, f"{by['ms'] / count:.2f}", f"{low:.2f} – {high:.2f}", f"{tokens / by['ms'] * 1e3:,.0f}",
            f"{by['ms'] / first['ms']:.2f}", f"{by['peak_memory'] / 2**20:,.0f} MiB", _quiet([by]),
        ])  # fmt: skip
    head = ["", f"ms/{what}", "fastest – slowest", "tokens/s", "ratio", "peak RSS", "quiet turns"]
    return table(head, rows)


def _quiet(figures: Any) -> str:
    fewest = min(figures, key=lambda by: by["quiet"])
    return f"{fewest['quiet']} of {fewest['all']}"
