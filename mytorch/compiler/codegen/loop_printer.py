"""What the sources of a loop have in common: the order of its steps, and how a step is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .loop import COLUMN, FULL, ROW, Loop, Step


class Sweep(NamedTuple):
    """A sweep over the elements of a row, as numbers of steps in the order in which they are computed.

    Attributes:
        rows: numbers that are computed once, before the sweep.
        loaded: elements that an earlier sweep has computed, and left where they are found.
        computed: elements that the sweep computes.
        stored: elements that are results, or that later sweeps find.
        columns: sums of columns, to which it adds the elements of the row.
        reduced: reductions of the row, whose results are there at its end.
    """

    rows: list[int]
    loaded: list[int]
    computed: list[int]
    stored: list[int]
    columns: list[int]
    reduced: list[int]


class LoopPrinter:
    """Prints a loop, sweep by sweep. Languages are subclasses, which print a `sweep` and a number of a `row`.

    Attributes:
        expressions: the source of each function.
        held: the steps whose elements later sweeps find in memory, or in registers.
    """

    expressions: Mapping[str, str]
    held: Collection[int] = ()

    def __init__(self, loop: Loop, name: str, steps: Sequence[Step]):
        self.loop, self.name, self.steps = loop, name, steps

    def body(self) -> list[str]:
        """Returns the lines for a row."""
        lines = []
        for sweep in self.sweeps():
            lines += [line for k in sweep.rows for line in self.row(k)]
            lines += self.sweep(sweep) if any(sweep[1:]) else []
        return lines

    def row(self, k: int) -> list[str]:
        """Returns the lines that compute a number of the row."""
        raise NotImplementedError

    def sweep(self, sweep: Sweep) -> list[str]:
        """Returns the lines of a sweep, one that does anything."""
        raise NotImplementedError

    def sweeps(self) -> list[Sweep]:
        """Returns the sweeps: as many as reductions depend on each other, and one."""
        return [self._sweep_of(stage) for stage in range(max(self.loop.stages, default=0) + 1)]

    def _sweep_of(self, stage: int) -> Sweep:
        steps, here = self.steps, self._at(stage)
        rows = [k for k in here if steps[k].kind == ROW and not self.is_reduced(steps[k])]
        columns = [k for k in here if steps[k].kind == COLUMN]
        stored = [k for k in here if steps[k].kind == FULL and (k in self.loop.outputs or k in self.held)]
        reduced = [k for k in self._at(stage + 1) if self.is_reduced(steps[k])]
        wanted = [*stored, *[x for k in (*columns, *reduced) for x in steps[k].steps()]]
        return Sweep(rows, *self.elements(wanted, stage), stored, columns, reduced)

    def _at(self, stage: int) -> list[int]:
        """Returns the steps that can be computed after this number of sweeps."""
        return [k for k, known in enumerate(self.loop.stages) if known == stage]

    def is_reduced(self, step: Step) -> bool:
        """Whether a sweep computes a step of the row, from all elements."""
        return step.reduces_rows

    def elements(self, wanted: Iterable[int], stage: int) -> tuple[list[int], list[int]]:
        """Returns which elements a sweep loads, and which it computes, for those that are wanted."""
        loaded, computed, todo = set(), set(), [*wanted]
        while todo:
            k = todo.pop()
            if self.steps[k].kind == ROW or k in loaded or k in computed:
                continue
            if k in self.held and self.loop.stages[k] < stage:
                loaded.add(k)
            else:
                computed.add(k)
                todo += self.steps[k].steps()
        return sorted(loaded), sorted(computed)

    def line(self, k: int) -> str:
        """Returns the line that computes a step of elements, or of numbers of the row."""
        step = self.steps[k]
        return f"v{k} = {self.expressions[step.name].format(*map(self.operand, step.args))}"

    def operand(self, a: str | float) -> str:
        """Returns the source of an argument of a step."""
        raise NotImplementedError


def indented(lines: Iterable[str]) -> list[str]:
    """Returns lines of a block."""
    return [f"    {line}" for line in lines]
