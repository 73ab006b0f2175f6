"""mode="max-autotune": measures strategies for loops, and keeps the figures on disk by content."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import platform
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...backends import threads
from ...nn.functional.variant import uses_kernels
from ...nn.fused_ops.background import cache_folder
from ...utils import atomic_write
from ..codegen import numba_source
from ..codegen.loop import COLUMN, FULL, ROW, SCALAR, Loop
from ..codegen.numba_source import DEFAULT, SMALL, Strategy
from ..memory.live_ranges import scheduled
from ..program.instruction import Instruction
from ..program.program import Program

_BUDGET, _ROUNDS = 0.006, 5  # for each strategy: seconds, and how often it runs at least
_MARGIN = 0.95  # what is faster by less may be noise


class Case(NamedTuple):
    """What the figures depend on, besides the sources."""

    loop: Loop
    rows: int
    n: int
    dtypes: tuple[str, ...]  # of the inputs
    usual: Strategy
    threads: int
    cpu: str


class Measured(NamedTuple):
    """A strategy and the milliseconds of its fastest run."""

    strategy: Strategy
    ms: float


def is_compiled() -> bool:
    """Whether loops are compiled: not without Numba, nor with `use_fused(False)`."""
    return bool(uses_kernels() and threads.installed())


def strategy_of(i: Instruction, is_tuned: bool) -> Strategy:
    """Returns how a loop runs: the fastest strategy, or the usual one."""
    return best(_case_of(i)) if is_tuned and is_compiled() else _usual(i)


def table(program: Program) -> str:
    """See `Program.strategies`."""
    if not is_compiled():
        raise RuntimeError("strategies(): loops are not compiled without Numba, or with use_fused(False)")
    loops = [(k, i) for k, i in enumerate(scheduled(program)) if i.name == "loop"]
    return "\n".join([_table(f"loop{k}", _case_of(i)) for k, i in loops])


def _usual(i: Instruction) -> Strategy:
    """Returns the strategy without measuring: one thread for few elements, which saves some microseconds."""
    return DEFAULT._replace(threads=int(i.kwargs["rows"] * i.kwargs["n"] < SMALL))


def _case_of(i: Instruction) -> Case:
    dtypes = tuple([x.dtype.name for x in i.args])
    sizes = i.kwargs["rows"], i.kwargs["n"]
    return Case(i.kwargs["loop"], *sizes, dtypes, _usual(i), threads.get_num_threads(), _cpu())


def best(case: Case) -> Strategy:
    """Returns the fastest strategy, the usual one if the others gain less than 5 %."""
    figures = measured(case)
    fastest = min(figures, key=lambda x: x.ms)
    return fastest.strategy if fastest.ms < _MARGIN * figures[0].ms else case.usual


@functools.cache
def measured(case: Case) -> list[Measured]:
    """Returns the figures of all strategies, the usual one first: from the disk, if they are there."""
    content = f"{numba_source.HEADER}{numba_source.source(case.loop)}{case}"
    digest, root = hashlib.sha256(content.encode()).hexdigest()[:24], cache_folder()
    path = None if root is None else root / "programs" / digest / "strategies.json"
    found = strategies(case)
    figures = _read(path)
    if [x.strategy for x in figures] != found:
        figures = _measure(case, found)
        _write(path, figures)
    return figures


def strategies(case: Case) -> list[Strategy]:
    """Returns the strategies that make a difference for a loop, at most 4, the usual one first."""
    loop, usual = case.loop, case.usual
    changes: list[dict[str, int]] = [{}, {"bits": 0}, {"keeps": False}]
    if case.threads > 1:
        changes.append({"threads": 1 - usual.threads})
    found: dict[tuple[str, int], Strategy] = {}
    for change in changes:
        strategy = usual._replace(**change)
        found.setdefault((numba_source.source(loop, strategy=strategy), strategy.threads), strategy)
    return [*found.values()]


def _table(name: str, case: Case) -> str:
    """Returns the figures of a loop as text, the fastest first."""
    figures, chosen = measured(case), best(case)
    lines = [f"{name}, {case.rows} rows of {case.n}"]
    for strategy, ms in sorted(figures, key=lambda x: x.ms):
        text = " ".join(_changes(strategy, case.usual)) or "as usual"
        note = "  (chosen)" if strategy == chosen else ""
        lines.append(f"  {ms:9.4f} ms  {ms / figures[0].ms:5.2f}  {text}{note}")
    return "\n".join(lines)


def _changes(strategy: Strategy, usual: Strategy) -> list[str]:
    pairs = zip(strategy._fields, strategy, usual, strict=True)
    return [f"{name}={value}" for name, value, other in pairs if value != other]


def _measure(case: Case, found: list[Strategy]) -> list[Measured]:
    """Runs the strategies in turn, on random numbers."""
    args = [*_arrays(case), case.rows, case.n]
    functions = [numba_source.loaded(case.loop, strategy) for strategy in found]
    for function in functions:
        function(*args)  # compiles
    seconds, start, rounds = [math.inf] * len(found), time.perf_counter(), 0
    while time.perf_counter() - start < _BUDGET * len(found) or rounds < _ROUNDS:
        rounds += 1
        for k, function in enumerate(functions):
            before = time.perf_counter()
            function(*args)
            seconds[k] = min(seconds[k], time.perf_counter() - before)
    return [Measured(strategy, 1e3 * s) for strategy, s in zip(found, seconds, strict=True)]


def _arrays(case: Case) -> list[np.ndarray]:
    """Returns arrays for a loop: its inputs and its own outputs."""
    loop, random = case.loop, np.random.default_rng(0)
    sizes = {FULL: case.rows * case.n, ROW: case.rows, COLUMN: case.n, SCALAR: 1}
    pairs = zip(loop.inputs, case.dtypes, strict=True)
    inputs = [random.random(sizes[kind], np.float32).astype(dtype) for kind, dtype in pairs]
    return inputs + [np.empty(sizes[loop.steps[k].kind], loop.steps[k].dtype) for k in loop.own]


def _read(path: Path | None) -> list[Measured]:
    """Returns what a file holds; nothing if there is none, or something else in it."""
    try:
        listed = json.loads("" if path is None else path.read_text())
        return [Measured(Strategy(**strategy), float(ms)) for strategy, ms in listed]
    except (OSError, ValueError, TypeError):
        return []


def _write(path: Path | None, figures: list[Measured]) -> None:
    listed = [[x.strategy._asdict(), x.ms] for x in figures]
    with contextlib.suppress(OSError):  # then the next process measures again
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial:
                partial.write_text(json.dumps(listed))


@functools.cache
def _cpu() -> str:
    """Returns the model of the CPU."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith("model name")), platform.processor())
