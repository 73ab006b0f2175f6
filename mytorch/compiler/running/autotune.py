"""mode="max-autotune": strategies of loops are measured, and kept on disk by the content of the loop."""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import suppress
from functools import partial

import numpy as np

from ...nn.fused_ops.background import cache_folder
from ...utils import atomic_write
from ..codegen.loop import COLUMN, FULL, ROW, SCALAR, Loop
from ..codegen.numba_source import HEADER, Strategy, candidates, loaded, source

_BUDGET, _ROUNDS = 0.006, 5  # for each strategy: seconds, and how often it runs at least
_MARGIN = 0.95  # what is faster by less may be noise


class Tuning:
    """The strategies of a loop over arrays of these sizes, measured unless the disk has the figures.

    Attributes:
        times: for each strategy the milliseconds of its fastest run; the usual one is the first.
        chosen: how the loop runs: in the fastest, unless it gains less than 5 %, or as `choose` says.
    """

    def __init__(self, loop: Loop, rows: int, n: int, dtypes: tuple[str, ...], pool: int, cpu: str):
        self.loop, self.rows, self.n, self.dtypes = loop, rows, n, dtypes
        content = f"{HEADER}{source(loop)}{(loop, rows, n, dtypes, pool, cpu)}"
        digest, root = hashlib.sha256(content.encode()).hexdigest()[:24], cache_folder()
        self._path = None if root is None else root / "programs" / digest / "strategies.json"
        found, self.times, self.chosen = candidates(loop, rows * n, pool), {}, None
        with suppress(OSError, ValueError, TypeError):  # there is no file, or something else in it
            listed, chosen = json.loads("" if self._path is None else self._path.read_text())
            times = {Strategy(**x): float(ms) for x, ms in listed}
            self.times, self.chosen = times, Strategy(**chosen)
        if [*self.times][: len(found)] != found or self.chosen not in self.times:
            self.times = self.measured(found)
            fastest = min(found, key=self.times.__getitem__)
            self.choose(fastest if self.times[fastest] < _MARGIN * self.times[found[0]] else found[0])

    def choose(self, strategy: Strategy) -> None:
        """Makes the loop run in a strategy, which is measured, and keeps that on disk."""
        self.times |= {} if strategy in self.times else self.measured([strategy])
        self.chosen, listed = strategy, [[x._asdict(), ms] for x, ms in self.times.items()]
        with suppress(OSError):  # then the next process measures again
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(self._path) as file:
                    file.write_text(json.dumps([listed, strategy._asdict()]))

    def measured(self, found: list[Strategy]) -> dict[Strategy, float]:
        """Returns the times of strategies, which run in turn, on random numbers."""
        sizes = {FULL: self.rows * self.n, ROW: self.rows, COLUMN: self.n, SCALAR: 1}
        random, outputs = np.random.default_rng(0), [self.loop.steps[k] for k in self.loop.own]
        inputs = zip(self.loop.inputs, self.dtypes, strict=True)
        args = [random.random(sizes[kind], np.float32).astype(dtype) for kind, dtype in inputs]
        args += [*[np.empty(sizes[step.kind], step.dtype) for step in outputs], self.rows, self.n]
        runs = {strategy: partial(loaded(self.loop, strategy), *args) for strategy in found}
        for run in runs.values():
            run()  # compiles
        times, start, rounds = dict.fromkeys(found, math.inf), time.perf_counter(), 0
        while time.perf_counter() - start < _BUDGET * len(found) or rounds < _ROUNDS:
            rounds += 1
            for strategy, run in runs.items():
                before = time.perf_counter()
                run()
                times[strategy] = min(times[strategy], 1e3 * (time.perf_counter() - before))
        return times

    def __str__(self) -> str:
        usual, lines = next(iter(self.times)), [f"{self.rows} rows of {self.n}"]
        for strategy, ms in sorted(self.times.items(), key=lambda x: x[1]):
            note = "  (chosen)" if strategy == self.chosen else ""
            lines.append(f"  {ms:9.4f} ms  {ms / self.times[usual]:5.2f}  {strategy.changes(usual)}{note}")
        return "\n".join(lines)
