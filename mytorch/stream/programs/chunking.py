"""Runs programs part by part of the batch, so that they need less memory: see `Program.chunked`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...backends.device import RawArray
from ...core.op import as_raw
from ...core.tensor import from_raw, raw_of
from .cutting import Cut, cut_of, scaled
from .memory import memory_of, size_text
from .passes import (
    fold_constants,
    fold_views,
    functionalize,
    merge_common_subexpressions,
    remove_dead_code,
)
from .program import Instruction, Program, Value, fits, mapped

_PASSES = fold_views, functionalize, fold_constants, merge_common_subexpressions, remove_dead_code
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Chunked:
    """A program that runs part by part of the batch.

    Instructions that treat the rows of the batch by themselves run in loops over parts of it; sums over the
    batch are added up. The others run between the loops, on whole arrays, which the loops store. A later loop
    computes again what an earlier one had computed and didn't store.

    Args:
        program: its first input's first dim is the batch, and that of all inputs of this length.
        memory: the limit of `peak`: bytes, or text as "500MB".

    Attributes:
        rows: of a part.
        peak: the bytes that the program makes, at the most at a time; inputs and state aren't among them.

    Raises:
        ValueError: no number of rows needs so little memory, or the program writes to its inputs.
    """

    def __init__(self, program: Program, memory: int | str):
        limit = _bytes_of(memory)
        self._plan = plan = Plan(program)
        self.name, self.inputs = program.name, program.inputs
        self._whole = program.optimized()
        self.rows, self.peak = plan.rows, self._whole.memory().peak
        if self.peak <= limit:
            return
        self._whole, smallest = None, plan.peak(1)
        if smallest > limit:
            least = size_text(smallest)
            raise ValueError(f"{self.name}: a row at a time needs {least}, the limit is {memory}")
        low, high = 1, plan.rows + 1  # binary search: `low` rows fit, `high` don't
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if plan.peak(middle) <= limit else (low, middle)
        parts = -(-plan.rows // low)
        self.rows = -(-plan.rows // parts)
        self.peak = plan.peak(self.rows)

    def __str__(self) -> str:
        plan = self._plan
        if self._whole is not None:
            return str(self._whole)
        lines = [f"{self.name}: parts of {self.rows} of {plan.rows} rows, peak {size_text(self.peak)}"]
        for stage in plan.stages:
            lines += ["for each part:"] * stage.is_loop + [str(stage.program(self.rows))]
        return "\n".join(lines)

    def __call__(self, *tensors: Any) -> Any:
        """Runs the program; arguments and results are those of `Program.__call__`. Inputs may be memory maps:
        of what is cut, a part is read at a time."""
        if self._whole is not None:
            return self._whole(*tensors)
        raws = [np.asarray(raw_of(x)) for x in tensors]
        if len(raws) != len(self.inputs) or not all(map(fits, raws, self.inputs)):
            wanted = ", ".join(value.described() for value in self.inputs)
            given = ", ".join(f"{x.dtype}{list(x.shape)}" for x in raws)
            raise ValueError(f"{self.name}: expected {wanted}, got {given}")
        return self._plan.run(raws, self.rows, self._plan.rows)


@dataclass
class Stage:
    """Instructions that run together.

    Attributes:
        cuts: how each is cut, in a loop over parts of the batch.
        inputs: the values that they take, with the dims along which these are cut; but not
        held: state and constants that are taken as a whole.
        outputs: the values that are needed later, or returned; with their dims, or the ufuncs that combine
            the results of the parts.
    """

    plan: Plan
    number: int
    instructions: list[Instruction]
    cuts: dict[Instruction, Cut]
    inputs: dict[tuple[Value, int | None], None]
    outputs: dict[Value, int | str | None]
    held: tuple[Value, ...] = ()

    @property
    def is_loop(self) -> bool:
        return self.number % 2 == 1

    def program(self, now: int) -> Program:
        """Returns the program of the stage, for a part of so many rows if it is a loop."""
        now = now if self.is_loop else 0
        if now not in self._programs:
            self._programs[now] = _Builder(self, now).program().optimized()
        return self._programs[now]

    @cached_property
    def _programs(self) -> dict[int, Program]:
        return {}


class Plan:
    """The stages of a program: those of even numbers run once, those of odd ones in a loop over parts.

    Attributes:
        rows: of the batch.
        stages: in the order in which they run.
    """

    def __init__(self, program: Program):
        for step in _PASSES:
            program = step(program)
        self.program, self.bases = program, program.bases()
        self.makers = {y: i for i in program.instructions for y in i.outputs}
        self.changed = {self.bases.get(x, x) for x in program.changed_storages()}
        if self.changed & {*program.inputs}:
            raise ValueError(f"{program.name} writes to its inputs, which parts can't do")
        first = [x.shape[0] for x in program.inputs if x.ndim]
        self.rows = first[0] if first else 1
        self._uncut: set[Instruction] = set()
        while not self._try():  # until all that is needed as a whole can be stored
            pass

    def _try(self) -> bool:
        """Makes the stages; False if an instruction that was cut mustn't be."""
        self.cuts: dict[Instruction, Cut] = {}
        self.levels: dict[Instruction, int] = {}
        self._writes: dict[Value, list[int]] = {}
        self._assign_levels()
        self.stored = {x: dim for x in self.program.results() if (dim := self.dim_of(x)) is not None}
        for i in self.program.instructions:
            if i not in self.cuts:
                self.stored |= {x: d for x in i.inputs() if (d := self.dim_of(x)) is not None}
        while True:
            before = len(self.stored)
            self.stages = [self._stage(k) for k in range(max(self.levels.values(), default=0) + 1)]
            if len(self.stored) == before:
                break
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

    def _stage(self, number: int) -> Stage:
        """Returns a stage; adds to `stored` what it can't compute again, as it has been written to since."""
        own = [i for i in self.program.instructions if self.levels[i] == number]
        stage = Stage(self, number, [], self.cuts, {}, {})
        if not stage.is_loop:
            stage.instructions = own
            stage.inputs = {(x, None): None for i in own for x in i.inputs() if self.makers.get(x) not in own}
            stage.inputs |= {(x, None): None for i in own for x in i.written if self.makers.get(x) not in own}
            return stage
        waiting = [i for i in own if any([isinstance(d, str) or y in self.stored
                   for y, d in zip(i.outputs, self.cuts[i].results, strict=True)])]  # fmt: skip
        needed: set[Instruction] = set()
        while waiting:
            i = waiting.pop()
            if i in needed:
                continue
            needed.add(i)
            for x in i.inputs():
                maker = self.makers.get(x)
                is_part = self.dim_of(x) is not None
                if is_part and self.levels[maker] < number and self._is_stale(maker, number):
                    self.stored[x] = self.dim_of(x)
                if is_part and (self.levels[maker] == number or x not in self.stored):
                    waiting.append(maker)
                else:
                    stage.inputs[x, self.cuts[i].operands.get(x)] = None
        stage.instructions = [i for i in self.program.instructions if i in needed]
        return stage

    def _is_stale(self, i: Instruction, number: int) -> bool:
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
                        if self.levels[i] == stage.number and (y in self.stored or isinstance(kind, str)):
                            stage.outputs[y] = kind
                    elif y in later | results:
                        stage.outputs[y] = None
        self.stages = [stage for stage in self.stages if stage.instructions]
        kept = self.program.state.keys() | self.program.constants.keys()
        for stage in self.stages:
            written = [self.bases[x] for x, _ in stage.inputs if self.bases[x] in self.changed]
            if len(written) > len({*written}) and not stage.is_loop:
                raise ValueError(f"{self.program.name} writes to views across the parts of the program")
            stage.held = tuple([x for x, dim in stage.inputs if dim is None and x in kept])
            stage.inputs = {(x, dim): None for x, dim in stage.inputs if dim is not None or x not in kept}
        self._last = {x: stage.number for stage in self.stages for x, _ in stage.inputs}
        self._last |= dict.fromkeys(results, 1 + max(self.levels.values(), default=0))

    def peak(self, now: int) -> int:
        """Returns the bytes of what is made, at the most at a time, in parts of so many rows."""
        peak, sizes = 0, {}  # what is held, with the bytes of each
        for stage in self.stages:
            made = {self._holder(y) for y in stage.outputs} - sizes.keys() - {None}
            alive = sum(sizes.values()) + sum([_nbytes(y) for y in made if stage.is_loop])
            peak = max(peak, alive + memory_of(stage.program(min(now, self.rows))).peak)
            grads = {y for i in stage.instructions if i.name == "host.set_grad" for y in i.outputs}
            sizes |= {y: _nbytes(y) for y in made | grads}
            used = {self._holder(x) for x, last in self._last.items() if last > stage.number}
            sizes = {y: n for y, n in sizes.items() if y in used or self.makers[y].name == "host.set_grad"}
        return peak

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

    def run(self, raws: list[RawArray], now: int, rows: int) -> Any:
        """Returns what the program returns.

        Args:
            now: the rows of a part.
            rows: all rows; another number than those of the program if it `is_rowwise`.
        """
        known = dict(zip(self.program.inputs, raws, strict=True)) | self.program.constants
        for value, raw in self.program.state.items():
            owner = self.program.owners.get(value, lambda: None)()
            known[value] = raw if owner is None else owner._data._array
        written = [known[x] for x in self.changed if x in self.program.state]
        if any([np.may_share_memory(a, b) for a in written for b in raws]):
            raise ValueError(f"{self.program.name}: it writes to a tensor that shares memory with another")
        for stage in self.stages:
            if stage.is_loop:
                self._run_loop(stage, known, now, rows)
            else:
                results = _called(stage.program(now), [known[x] for x, _ in stage.inputs])
                known |= dict(zip(stage.outputs, results, strict=True))
                del results
            for x in [x for x in known if x in self.makers and self._last.get(x, -1) <= stage.number]:
                del known[x]
        outputs = self.program.outputs
        return mapped(lambda x: from_raw(as_raw(known[x])) if isinstance(x, Value) else x, outputs)

    def _run_loop(self, stage: Stage, known: dict[Value, RawArray], now: int, rows: int) -> None:
        for y, kind in stage.outputs.items():
            if isinstance(kind, int):
                known[y] = np.empty(scaled(y.shape, kind, self.rows, rows), y.dtype)
        for start in range(0, rows, now):
            stop = min(start + now, rows)
            args = [self._part(x, known[x], dim, start, stop) for x, dim in stage.inputs]
            results = _called(stage.program(stop - start), args)
            for (y, kind), part in zip(stage.outputs.items(), results, strict=True):
                if isinstance(kind, int):
                    self._part(y, known[y], kind, start, stop)[...] = part
                elif start:
                    getattr(np, kind)(known[y], part, out=known[y])
                else:
                    known[y] = np.array(part)
            del args, results, part

    def _part(self, x: Value, raw: RawArray, dim: int | None, start: int, stop: int) -> RawArray:
        if dim is None:
            return raw
        unit = x.shape[dim] // self.rows
        return raw[(slice(None),) * dim + (slice(start * unit, stop * unit),)]


def _called(program: Program, args: Iterable[RawArray]) -> tuple:
    run = program.executable()
    run.bind()
    return run(*args)


class _Builder:
    """Makes the program of a stage, with values of its own: of parts of arrays in a loop."""

    def __init__(self, stage: Stage, now: int):
        self._stage, self._plan, self._now = stage, stage.plan, now
        self._values: dict[tuple[Value, int | str | None], Value] = {}
        self._storages: dict[Value, Value] = {}  # by what they are of the whole program
        self._numbers: Counter[int] = Counter()
        self._next = 1 + max([x.number for x in stage.plan.bases], default=0)

    def program(self) -> Program:
        """Returns it; its inputs and outputs are in the order of the stage's."""
        whole, stage = self._plan.program, self._stage
        kept = {*stage.held}
        for x in kept:
            self._values[x, None] = self._storages[x] = x
            self._numbers[x.number] = 1
        inputs = tuple([self._new(x, dim) for x, dim in stage.inputs])
        instructions = [self._instruction(i) for i in stage.instructions]
        outputs = tuple([self._values[y, kind] for y, kind in stage.outputs.items()])
        held = [
            {x: y for x, y in items.items() if x in kept}
            for items in (whole.state, whole.constants, whole.owners)
        ]
        state, constants, owners = held
        name = f"{whole.name} {stage.number}"
        return Program(inputs, state, constants, instructions, outputs, name, owners)

    def _new(self, x: Value, dim: int | str | None, of: Value | None = None) -> Value:
        number = x.number
        if self._numbers[number]:
            number, self._next = self._next, self._next + 1
        self._numbers[number] += 1
        shape, strides = x.shape, x.strides
        if isinstance(dim, int) and x.dtype.kind != "O":
            shape = scaled(x.shape, dim, self._plan.rows, self._now)
            whole = x.strides[dim] * x.shape[dim]  # the dims outside of the one that is cut move together
            strides = [s // x.shape[dim] * shape[dim] if abs(s) >= abs(whole) > 0 else s for s in x.strides]
        made = self._values[x, dim] = Value(number, shape, tuple(strides), x.dtype, of)
        self._storages.setdefault(self._plan.bases[x], made.storage)
        return made

    def _instruction(self, i: Instruction) -> Instruction:
        cut = self._stage.cuts.get(i)
        operands = {} if cut is None else cut.operands

        def current(x: Any) -> Any:
            return self._values[x, operands.get(x)] if isinstance(x, Value) else x

        made = replace(i, args=mapped(current, i.args), kwargs=mapped(current, i.kwargs))
        made = made if cut is None else cut.resized(made, self._now)
        sources = {self._plan.bases[x]: current(x).storage for x in i.inputs()}
        outputs = []
        for k, y in enumerate(i.outputs):
            of = None if y.of is None else sources.get(self._plan.bases[y])
            outputs.append(self._new(y, None if cut is None else cut.results[k], of))
        written = [self._storages[self._plan.bases.get(x, x)] for x in i.written]
        return replace(made, outputs=tuple(outputs), written=tuple(dict.fromkeys(written)))


def _nbytes(x: Value) -> int:
    return x.size * x.dtype.itemsize


def _bytes_of(memory: int | str) -> float:
    """Returns the number of bytes that a text says: "500MB", "1.5 GiB"."""
    if isinstance(memory, int):
        return memory
    found = re.fullmatch(r"([0-9]+\.?[0-9]*) *([A-Za-z]+)", memory) if isinstance(memory, str) else None
    if found is None or found[2] not in _UNITS:
        units = ", ".join(_UNITS)
        raise ValueError(f'memory is a number of bytes, or text as "500MB" (of {units}), got {memory!r}')
    return float(found[1]) * _UNITS[found[2]]
