"""Stages: the parts of a program that run one after another, in loops over the rows of the batch or once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from ...backends.meta.layout import layout
from ...utils.nested import mapped
from ..passes.strides import declare_strides
from ..program.instruction import Instruction, Value
from ..program.program import Program
from .cutting import scaled
from .levels import Levels


@dataclass
class Stage:
    """Instructions that run together.

    Attributes:
        whole: the program.
        levels: how instructions are cut in loops.
        number: odd for a loop over parts of the batch.
        inputs: the values that they take, with the dims along which these are cut; but not
        held: state and constants that are taken as a whole.
        outputs: the values that are needed later, or returned; with their dims, or the ufuncs that combine
            the results of the parts.
    """

    whole: Program
    levels: Levels
    number: int
    instructions: list[Instruction]
    inputs: dict[tuple[Value, int | None], None]
    outputs: dict[Value, int | str | None] = field(default_factory=dict)
    held: tuple[Value, ...] = ()
    _programs: dict[int, Program] = field(default_factory=dict)

    @property
    def is_loop(self) -> bool:
        return self.number % 2 == 1

    @property
    def combines(self) -> bool:
        """Whether a result is combined of those of the parts."""
        return any([isinstance(kind, str) for kind in self.outputs.values()])

    def taken_whole(self) -> list[Value]:
        """Returns the inputs that aren't cut."""
        return [x for x, dim in self.inputs if dim is None]

    def hold(self) -> None:
        """Moves state and constants from `inputs` to `held`.

        Raises:
            ValueError: it takes an array to which the program writes, and a view of it.
        """
        bases = [self.levels.bases[x] for x, _ in self.inputs]
        written = [x for x in bases if x in self.levels.changed]
        twice = next((x for x in written if written.count(x) > 1), None)
        if twice is not None and not self.is_loop:
            raise ValueError(
                f"{self.whole.name} can't run in parts: one of them takes both {twice.described()}, to which "
                "the program writes, and a view; make new arrays instead"
            )
        kept = self.whole.state.keys() | self.whole.constants.keys()
        self.held = tuple([x for x in self.taken_whole() if x in kept])
        for x in self.held:
            del self.inputs[x, None]

    def program(self, now: int) -> Program:
        """Returns the program of the stage, for a part of `now` rows if it is a loop."""
        now = now if self.is_loop else 0
        if now not in self._programs:
            self._programs[now] = Builder(self, now).program().optimized()
        return self._programs[now]


class Builder:
    """Makes the program of a stage, with values of its own: of parts of arrays in a loop."""

    def __init__(self, stage: Stage, now: int):
        self._stage, self._now, self._bases = stage, now, stage.levels.bases
        self._values: dict[tuple[Value, int | str | None], Value] = {}
        self._storages: dict[Value, Value] = {}  # by what they are of the whole program
        self._numbers: Counter[int] = Counter()
        self._next = 1 + max([x.number for x in stage.levels.bases], default=0)

    def program(self) -> Program:
        """Returns it; its inputs and outputs are in the order of the stage's."""
        whole, stage = self._stage.whole, self._stage
        for x in stage.held:
            self._values[x, None] = self._storages[x] = x
            self._numbers[x.number] = 1
        inputs = tuple([self._input(x, dim) for x, dim in stage.inputs])
        instructions = [*map(self._instruction, stage.instructions)]
        outputs = tuple([self._values[y, kind] for y, kind in stage.outputs.items()])
        written = {x for i in instructions for x in i.written}
        loose = tuple([x for x in inputs if x not in written and x.dtype.kind != "O"])
        state, constants, owners = map(self._held, (whole.state, whole.constants, whole.owners))
        name = f"{whole.name} {stage.number}"
        made = Program(inputs, state, constants, instructions, outputs, name, owners, loose=loose)
        return declare_strides(made)

    def _held(self, items: dict[Value, Any]) -> dict[Value, Any]:
        return {x: items[x] for x in self._stage.held if x in items}

    def _input(self, x: Value, dim: int | None) -> Value:
        """Returns an input: a part of an array, or what an earlier stage has stored, is taken in C order, and
        copied if it isn't."""
        made = self._new(x, dim)
        if made.dtype.kind != "O" and (dim is not None or x not in self._stage.whole.inputs):
            strides = layout(made.shape, None, made.dtype).strides
            made = self._values[x, dim] = replace(made, strides=strides)
            self._storages[self._bases[x]] = made
        return made

    def _new(self, x: Value, dim: int | str | None, of: Value | None = None) -> Value:
        number = x.number
        if self._numbers[number]:
            number, self._next = self._next, self._next + 1
        self._numbers[number] += 1
        shape, strides = x.shape, x.strides
        if isinstance(dim, int) and x.dtype.kind != "O":
            shape, strides = self._part(x, dim)
        made = self._values[x, dim] = Value(number, shape, strides, x.dtype, of)
        self._storages.setdefault(self._bases[x], made.storage)
        return made

    def _part(self, x: Value, dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shape and strides of a part: dims outside of the one that is cut move together."""
        shape = scaled(x.shape, dim, self._stage.levels.rows, self._now)
        whole = abs(x.strides[dim] * x.shape[dim])
        strides = [s // x.shape[dim] * shape[dim] if abs(s) >= whole > 0 else s for s in x.strides]
        return shape, tuple(strides)

    def _instruction(self, i: Instruction) -> Instruction:
        cut = self._stage.levels.cuts.get(i)
        operands, results = ({}, [None] * len(i.outputs)) if cut is None else (cut.operands, cut.results)

        def current(x: object) -> Any:
            return self._values[x, operands.get(x)] if isinstance(x, Value) else x

        made = replace(i, args=mapped(current, i.args), kwargs=mapped(current, i.kwargs))
        made = made if cut is None else cut.resized(made, self._now)
        sources = {self._bases[x]: current(x).storage for x in i.inputs()}
        pairs = [(y, None if y.of is None else sources.get(self._bases[y])) for y in i.outputs]
        outputs = tuple([self._new(y, kind, of) for (y, of), kind in zip(pairs, results, strict=True)])
        written = dict.fromkeys([self._storages[self._bases.get(x, x)] for x in i.written])
        return replace(made, outputs=outputs, written=tuple(written))
