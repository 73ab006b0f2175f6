"""Which instructions of a program run in loops over parts of the batch, and which between these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...backends.device import CPU
from ..memory.peak import Held, Memory, nbytes_of
from ..passes import fold_constants, fold_views, functionalize, merge_common_subexpressions, remove_dead_code
from ..program.instruction import Instruction, Value
from ..program.program import Program
from .crossing import STORE, crossing
from .levels import Levels
from .stage import Stage

_PASSES = fold_views, functionalize, fold_constants, merge_common_subexpressions, remove_dead_code


def rows_of(program: Program) -> int:
    """Returns the length of the batch: the first dim of the first input that has dims."""
    return next((x.shape[0] for x in program.inputs if x.ndim), 1)


class Stages:
    """The stages of a program: those of even numbers run once, those of odd ones in a loop over parts.

    What a stage takes of a loop as a whole is stored. What a later loop takes of an earlier one is stored, or
    computed again from other values: `crossing` chooses by the price.

    Args:
        program: see `Chunked`.
        price: of computing again, compared with the memory of what is stored, one of `crossing.PRICES`.

    Attributes:
        rows: of the batch.
        levels: of the instructions.
        all: the stages in the order in which they run.
        stored: the values of loops that are stored as a whole, with the dims along which they are cut.
        until: the number of the last stage whose instructions take a value, unless they run again later.
        last: the number of the last stage that uses a value.
    """

    def __init__(self, program: Program, price: int = STORE):
        if program.device is not CPU:
            raise NotImplementedError(f"{program.name} is on {program.device}; only the CPU's run in parts")
        for step in _PASSES:
            program = step(program)
        self.program, self.price, self.rows = program, price, rows_of(program)
        uncut: set[Instruction] = set()
        while True:  # until all that is needed as a whole can be stored
            self.levels = levels = Levels(program, self.rows, uncut)
            if levels.changed & {*program.inputs}:
                raise ValueError(f"{program.name} writes to its inputs, which parts can't do")
            self._make()
            opaque = [levels.makers[x] for x in self.stored if x.dtype.kind == "O"]
            if not opaque:
                break
            uncut.update(opaque)
        self._finish()

    def _make(self) -> None:
        """Makes the stages, and finds out what is stored."""
        levels, instructions, results = self.levels, self.program.instructions, self.program.results()
        self.until: dict[Value, int] = {}
        for i in instructions:
            self.until |= {x: max(levels.of[i], self.until.get(x, 0)) for x in (*i.inputs(), *i.outputs)}
        self.until |= dict.fromkeys(results, 1 + levels.last)
        whole = [x for i in instructions if i not in levels.cuts for x in i.inputs()]
        self.stored, before = levels.dims_of([*results, *whole]), -1
        while len(self.stored) > before:  # what a later loop wants stored, earlier ones may want from others
            before, self.all = len(self.stored), []
            for number in range(levels.last + 1):
                own = [i for i in instructions if levels.of[i] == number]
                self.all.append(self._loop(number, own) if number % 2 else self._once(number, own))

    def _once(self, number: int, own: list[Instruction]) -> Stage:
        taken = [x for i in own for x in (*i.inputs(), *i.written)]
        inside = {y for i in own for y in i.outputs}
        inputs = {(x, None): None for x in taken if x not in inside}
        return Stage(self.program, self.levels, number, own, inputs)

    def _loop(self, number: int, own: list[Instruction]) -> Stage:
        """Returns a loop; adds to `stored` what it takes of earlier loops and doesn't compute again."""
        levels = self.levels
        last = [i for i in own if self._has_to_run(i)]
        own_values = levels.dims_of([y for i in own for y in i.outputs])
        wanted = levels.dims_of([x for x, _ in self._needed(last, own_values.__contains__)[1]])
        ran = {i for other in self.all for i in other.instructions}
        self.stored |= levels.dims_of(crossing(self, number, wanted, ran))

        def is_made(x: Value) -> bool:
            return x in own_values or (levels.dim_of(x) is not None and x not in self.stored)

        needed, inputs = self._needed(last, is_made)
        instructions = [i for i in self.program.instructions if i in needed]
        return Stage(self.program, levels, number, instructions, inputs)

    def _has_to_run(self, i: Instruction) -> bool:
        """Whether something of a loop's instruction is left when the loop is over."""
        kinds = [self.levels.result_of(y) for y in i.outputs]
        return i.name == "check" or not self.stored.keys().isdisjoint(i.outputs) or str in map(type, kinds)

    def _needed(
        self, last: Iterable[Instruction], is_made: Callable[[Value], bool]
    ) -> tuple[set[Instruction], dict[tuple[Value, int | None], None]]:
        """Returns what runs in a loop so that the last ones can, and what these instructions are given."""
        needed, given, waiting = set(), {}, [*last]
        while waiting:
            i = waiting.pop()
            if i in needed:
                continue
            needed.add(i)
            for x in i.inputs():
                if is_made(x):
                    waiting.append(self.levels.makers[x])
                else:
                    given[x, self.levels.cuts[i].operands.get(x)] = None
        return needed, given

    def _finish(self) -> None:
        """Finds out what stages give each other."""
        later = {*self.program.results()}
        for stage in reversed(self.all):
            results = self._results(stage)
            stage.outputs = {y: kind for y, kind in results if y in later or isinstance(kind, str)}
            later |= {x for x, _ in stage.inputs}
        self.all = [stage for stage in self.all if stage.instructions]
        for stage in self.all:
            stage.hold()
        self.last = {x: stage.number for stage in self.all for x, _ in stage.inputs}
        self.last |= dict.fromkeys(self.program.results(), 1 + self.levels.last)

    def _results(self, stage: Stage) -> Iterator[tuple[Value, int | str | None]]:
        """Yields what a stage makes for others: a loop only what is stored, or combined of parts."""
        for i in stage.instructions:
            for y in i.outputs if self.levels.of[i] == stage.number else ():
                kind = self.levels.result_of(y)
                if not stage.is_loop or y in self.stored or isinstance(kind, str):
                    yield y, kind

    def peak(self, now: int) -> int:
        """Returns the bytes of what is made, at the most at a time, in parts of `now` rows."""
        return max([memory.peak for memory in self.memories(now)], default=0)

    def memories(self, now: int) -> list[Memory]:
        """Returns the memory of each stage in parts of `now` rows, with that of what crosses it."""
        found, alive = [], {}
        for stage, after in zip(self.all, self.crossings(), strict=True):
            made = {self._holder(y) for y in stage.outputs if stage.is_loop} - alive.keys() - {None}
            memory = stage.program(min(now, self.rows)).memory()
            others = [Held(y, nbytes_of(y), self.levels.makers[y].name) for y in (*alive, *made)]
            held = sorted([*memory.held, *others], key=lambda x: -x.nbytes)
            peak = memory.peak + sum([x.nbytes for x in others])
            found.append(memory._replace(peak=peak, held=held))
            alive = after
        return found

    def crossings(self) -> list[dict[Value, int]]:
        """Returns for each stage what was made and is alive after it, with the bytes; `.grad`s stay alive."""
        found, alive = [], {}
        for stage in self.all:
            grads = [y for i in stage.instructions if i.name == "host.set_grad" for y in i.outputs]
            made = dict.fromkeys([*map(self._holder, stage.outputs), *grads])
            made.pop(None, None)
            alive = alive | {y: nbytes_of(y) for y in made}
            used = {self._holder(x) for x, last in self.last.items() if last > stage.number}
            alive = {y: n for y, n in alive.items() if y in used or self.levels.is_gradient(y)}
            found.append(alive)
        return found

    def _holder(self, x: Value) -> Value | None:
        """Returns the array in whose memory a value lies that a stage has made; None if it was given."""
        base, makers, cuts = self.levels.bases[x], self.levels.makers, self.levels.cuts
        if base not in makers:
            return x if makers.get(x) in cuts else None
        return x if makers[x] in cuts or makers[base] in cuts else base

    def is_rowwise(self) -> bool:
        """Returns whether the results for each row of the batch follow from that row alone."""
        of_rows = {x for x in self.program.inputs if x.ndim and x.shape[0] == self.rows}
        for stage in self.all:
            if stage.combines or not of_rows.isdisjoint(stage.taken_whole()):
                return False
            of_rows.update(stage.outputs if stage.is_loop else ())
        return all([self.levels.dim_of(x) is not None or x in of_rows for x in self.program.results()])
