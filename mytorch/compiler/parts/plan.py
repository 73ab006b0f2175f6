"""Plans: which instructions of a program run in loops over parts of the batch, and which between these."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...backends.device import CPU
from ..memory.peak import Held, Memory, nbytes_of
from ..passes import fold_constants, fold_views, functionalize, merge_common_subexpressions, remove_dead_code
from ..program.instruction import Instruction, Value
from ..program.program import Program
from .crossing import STORE, crossing
from .cutting import Cut, cut_of
from .stage import Stage

_PASSES = fold_views, functionalize, fold_constants, merge_common_subexpressions, remove_dead_code


def rows_of(program: Program) -> int:
    """Returns the length of the batch: the first dim of the first input that has dims."""
    return next((x.shape[0] for x in program.inputs if x.ndim), 1)


class Plan:
    """The stages of a program: those of even numbers run once, those of odd ones in a loop over parts.

    What a whole-array stage takes of a loop is stored. What a later loop takes of an earlier one is stored,
    or computed again from other values: `crossing` chooses by the price.

    Args:
        program: see `Chunked`.
        price: of computing again, compared with the memory of what is stored, one of `crossing.PRICES`.

    Attributes:
        rows: of the batch.
        stages: in the order in which they run.
        stored: the values of loops that are stored as a whole, with the dims along which they are cut.
        until: the number of the last stage whose instructions take a value, unless they run again later.
        last: the number of the last stage that uses a value.
    """

    def __init__(self, program: Program, price: int = STORE):
        if program.device is not CPU:
            raise NotImplementedError(f"{program.name} is on {program.device}; only the CPU's run in parts")
        for step in _PASSES:
            program = step(program)
        self.program, self.bases, self.price = program, program.bases(), price
        self.makers = {y: i for i in program.instructions for y in i.outputs}
        self.changed = {self.bases.get(x, x) for x in program.changed_storages()}
        if self.changed & {*program.inputs}:
            raise ValueError(f"{program.name} writes to its inputs, which parts can't do")
        self.rows = rows_of(program)
        self._uncut: set[Instruction] = set()
        while not self._try():  # until all that is needed as a whole can be stored
            pass

    def _try(self) -> bool:
        """Makes the stages; False if an instruction that was cut mustn't be."""
        self.cuts: dict[Instruction, Cut] = {}
        self.levels: dict[Instruction, int] = {}
        self._writes: dict[Value, list[int]] = {}
        self._assign_levels()
        self.until: dict[Value, int] = {}
        for i in self.program.instructions:
            self.until |= {x: max(self.levels[i], self.until.get(x, 0)) for x in (*i.inputs(), *i.outputs)}
        self.until |= dict.fromkeys(self.program.results(), 1 + max(self.levels.values(), default=0))
        self.stored = {x: dim for x in self.program.results() if (dim := self.dim_of(x)) is not None}
        for i in self.program.instructions:
            if i not in self.cuts:
                self.stored |= {x: d for x in i.inputs() if (d := self.dim_of(x)) is not None}
        before = -1
        while len(self.stored) > before:  # what a later loop wants stored, earlier ones may want from others
            before, self.stages = len(self.stored), []
            for number in range(max(self.levels.values(), default=0) + 1):
                self.stages.append(self._loop(number) if number % 2 else self._once(number))
        opaque = [self.makers[x] for x in self.stored if x.dtype.kind == "O"]
        self._uncut |= {*opaque}
        self._find_outputs()
        return not opaque

    def dim_of(self, x: Value) -> int | None:
        """Returns the dim along which a value is made, if it is made part by part."""
        i = self.makers.get(x)
        kind = self._result_of(x) if i in self.cuts else None
        return kind if isinstance(kind, int) else None

    def _result_of(self, x: Value) -> int | str:
        i = self.makers[x]
        return self.cuts[i].results[i.outputs.index(x)]

    def _assign_levels(self) -> None:
        """Finds for each instruction how it is cut, and the first stage in which it can run."""
        dims = {x: 0 for x in self.program.inputs if x.ndim and x.shape[0] == self.rows > 1}
        touched: dict[Value, int] = {}  # the first stage for those that write there
        calls = 0
        for i in self.program.instructions:
            is_fixed = i in self._uncut or not self.changed.isdisjoint([self.bases[y] for y in i.outputs])
            cut = None if is_fixed or i.is_host else cut_of(i, dims, self.rows, self.makers)
            if cut is not None:
                self.cuts[i] = cut
            written = [self.bases.get(x, x) for x in i.written]
            bases = {self.bases[x] for x in (*i.inputs(), *i.outputs)} | {*written}
            level = max([self._earliest(x, cut is not None) for x in i.inputs()], default=0)
            level = max([level, *[w + (cut is not None) for x in bases for w in self._writes.get(x, ())]])
            level = max([level, *[touched.get(x, 0) for x in written], calls if i.is_host else 0])
            level = level if cut is None else max(level, 1)
            self.levels[i], calls = level, max(calls, level) if i.is_host else calls
            for x in bases:
                touched[x] = max(touched.get(x, 0), level + (cut is not None))
            for x in written:
                self._writes.setdefault(x, []).append(level)
            dims |= self._dims_of_results(i, cut, dims)

    def _earliest(self, x: Value, is_cut: bool) -> int:
        """Returns the first stage in which an instruction can use a value."""
        i = self.makers.get(x)
        if i is None or i not in self.cuts:
            return (0 if i is None else self.levels[i]) + is_cut
        return self.levels[i] + (1 if not is_cut else 0 if isinstance(self._result_of(x), int) else 2)

    def _dims_of_results(self, i: Instruction, cut: Cut | None, dims: dict[Value, int]) -> dict[Value, int]:
        """Whole results that look like an operand which is cut can be cut as that."""
        if cut is not None:
            return {y: d for y, d in zip(i.outputs, cut.results, strict=True) if isinstance(d, int)}
        like = [x for x in i.inputs() if x in dims and x.dtype.kind != "O"]
        if i.name == "kernel.vjp":
            args = self.makers[i.args[0]].args[1:]
            like = [args[k] for k in i.kwargs["wanted"] if args[k] in dims]
        found = {y: [dims[x] for x in like if x.shape == y.shape] for y in i.outputs}
        return {y: same[0] for y, same in found.items() if same}

    def _once(self, number: int) -> Stage:
        stage = Stage(self.program, self.rows, number, self.cuts, self.bases)
        stage.instructions = own = [i for i in self.program.instructions if self.levels[i] == number]
        inside = {y for i in own for y in i.outputs}
        taken = [*[x for i in own for x in i.inputs()], *[x for i in own for x in i.written]]
        stage.inputs = {(x, None): None for x in taken if x not in inside}
        return stage

    def _loop(self, number: int) -> Stage:
        """Returns a loop; adds to `stored` what it takes of earlier loops and doesn't compute again."""

        def is_own(x: Value) -> bool:
            return self.dim_of(x) is not None and self.levels[self.makers[x]] == number

        def is_made(x: Value) -> bool:
            return is_own(x) or (self.dim_of(x) is not None and x not in self.stored)

        stage = Stage(self.program, self.rows, number, self.cuts, self.bases)
        own = [i for i in self.program.instructions if self.levels[i] == number]
        last = [i for i in own if i.name == "check" or any([isinstance(d, str) or y in self.stored
                for y, d in zip(i.outputs, self.cuts[i].results, strict=True)])]  # fmt: skip
        wanted = [x for x, _ in self._needed(last, is_own)[1] if self.dim_of(x) is not None]
        ran = {i for other in self.stages for i in other.instructions}
        self.stored |= {x: self.dim_of(x) for x in crossing(self, number, wanted, ran)}
        needed, stage.inputs = self._needed(last, is_made)
        stage.instructions = [i for i in self.program.instructions if i in needed]
        return stage

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
                    waiting.append(self.makers[x])
                else:
                    given[x, self.cuts[i].operands.get(x)] = None
        return needed, given

    def is_stale(self, i: Instruction, number: int) -> bool:
        """Returns whether what an instruction takes is written to before a stage, so that it can't run there
        again."""
        levels = [w for x in i.inputs() for w in self._writes.get(self.bases[x], ())]
        return any([self.levels[i] < w < number for w in levels])

    def _find_outputs(self) -> None:
        results = {*self.program.results()}
        for stage in self.stages:
            later = {x for other in self.stages if other.number > stage.number for x, _ in other.inputs}
            for i in stage.instructions:
                for y in i.outputs:
                    if stage.is_loop:
                        kind = self._result_of(y)
                        is_taken = y in self.stored and y in later | results
                        if self.levels[i] == stage.number and (is_taken or isinstance(kind, str)):
                            stage.outputs[y] = kind
                    elif y in later | results:
                        stage.outputs[y] = None
        self.stages = [stage for stage in self.stages if stage.instructions]
        kept = self.program.state.keys() | self.program.constants.keys()
        for stage in self.stages:
            written = [self.bases[x] for x, _ in stage.inputs if self.bases[x] in self.changed]
            if len(written) > len({*written}) and not stage.is_loop:
                twice = next(x for x in written if written.count(x) > 1)
                raise ValueError(
                    f"{self.program.name} can't run in parts: one of them takes both "
                    f"{twice.described()}, to which the program writes, and a view; make new arrays instead"
                )
            stage.held = tuple([x for x, dim in stage.inputs if dim is None and x in kept])
            stage.inputs = {(x, dim): None for x, dim in stage.inputs if dim is not None or x not in kept}
        self.last = {x: stage.number for stage in self.stages for x, _ in stage.inputs}
        self.last |= dict.fromkeys(results, 1 + max(self.levels.values(), default=0))

    def peak(self, now: int) -> int:
        """Returns the bytes of what is made, at the most at a time, in parts of `now` rows."""
        return max([memory.peak for memory in self.memories(now)], default=0)

    def memories(self, now: int) -> list[Memory]:
        """Returns the memory of each stage in parts of `now` rows, with that of what crosses it."""
        found, alive = [], {}
        for stage, after in zip(self.stages, self.crossings(), strict=True):
            made = {self._holder(y) for y in stage.outputs if stage.is_loop} - alive.keys() - {None}
            memory = stage.program(min(now, self.rows)).memory()
            others = [Held(y, nbytes_of(y), self.makers[y].name) for y in (*alive, *made)]
            held = sorted([*memory.held, *others], key=lambda x: -x.nbytes)
            peak = memory.peak + sum([x.nbytes for x in others])
            found.append(memory._replace(peak=peak, held=held))
            alive = after
        return found

    def crossings(self) -> list[dict[Value, int]]:
        """Returns for each stage what was made and is alive after it, with the bytes; `.grad`s stay alive."""
        found, alive = [], {}
        for stage in self.stages:
            made = {y: None for y in map(self._holder, stage.outputs) if y is not None}
            made |= {y: None for i in stage.instructions if i.name == "host.set_grad" for y in i.outputs}
            alive = alive | {y: nbytes_of(y) for y in made}
            used = {self._holder(x) for x, last in self.last.items() if last > stage.number}
            alive = {y: n for y, n in alive.items() if y in used or self.makers[y].name == "host.set_grad"}
            found.append(alive)
        return found

    def _holder(self, x: Value) -> Value | None:
        """Returns the array in whose memory a value lies that a stage has made; None if it was given."""
        base = self.bases[x]
        if base in self.makers:
            return x if self.makers[x] in self.cuts or self.makers[base] in self.cuts else base
        return x if x in self.makers and self.makers[x] in self.cuts else None

    def is_rowwise(self) -> bool:
        """Returns whether the results for each row of the batch follow from that row alone."""
        of_rows = {x for x in self.program.inputs if x.ndim and x.shape[0] == self.rows}
        for stage in self.stages:
            taken = {x for x, dim in stage.inputs if dim is None}
            if not taken.isdisjoint(of_rows) or any([isinstance(d, str) for d in stage.outputs.values()]):
                return False
            of_rows |= {*stage.outputs} if stage.is_loop else set()
        return all([self.dim_of(x) is not None or x in of_rows for x in self.program.results()])
