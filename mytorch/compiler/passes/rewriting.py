"""What passes share: the instructions of the new program so far, and values in place of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program


class Rewrite:
    """A program that a pass makes of another one, instruction by instruction.

    Attributes:
        instructions: those so far.
    """

    def __init__(self, program: Program):
        self.instructions: list[Instruction] = []
        self._program, self._number = program, program.next_number()
        self._instead: dict[Value, Value] = {}

    def current(self, x: object) -> Any:
        """Returns the value that stands for another one; what is no value as it is."""
        return self._instead.get(x, x) if isinstance(x, Value) else x

    def renamed(self, i: Instruction) -> Instruction:
        """Returns an instruction with the values that stand for those that it takes and writes."""
        return i.renamed(self.current) if self._instead else i

    def keep(self, i: Instruction, **changes: object) -> None:
        """Adds an instruction, with changes, to the program."""
        self.instructions.append(replace(i, **changes) if changes else i)

    def replace(self, y: Value, by: Value) -> None:
        """Lets a value stand for another one from now on."""
        self._instead[y] = self.current(by)

    def forget(self, y: Value) -> Value:
        """Lets a value stand for itself again; returns the one that stood for it."""
        return self._instead.pop(y)

    def new(self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None,
            of: Value | None = None) -> Value:
        """Returns a new value, in C order by default."""
        strides = np.empty(shape, dtype).strides if strides is None else strides
        self._number += 1
        return Value(self._number - 1, shape, strides, dtype, None if of is None else of.storage)

    def program(self) -> Program:
        """Returns the program, with the outputs of the given one."""
        outputs = mapped(self.current, self._program.outputs)
        return replace(self._program, instructions=self.instructions, outputs=outputs)
