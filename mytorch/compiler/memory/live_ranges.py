"""How long the memory of values is needed: which instructions read it, and which are the last."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.functions import row_of
from ..program.instruction import Instruction, Value
from ..program.program import Program


def last_uses(program: Program, instructions: Sequence[Instruction]) -> list[list[Value]]:
    """Returns for each instruction the values that no later one takes: their names are deleted after it.

    NumPy's views keep the memory alive in which they lie. What the program is given and what it returns
    isn't deleted.
    """
    kept = {*program.inputs, *program.state, *program.constants, *program.results()}
    found: list[list[Value]] = []
    for i in reversed(instructions):
        last = [value for value in dict.fromkeys((*i.inputs(), *i.outputs)) if value not in kept]
        kept.update(last)
        found.append(last)
    return found[::-1]


def makes_new(i: Instruction) -> bool:
    """Whether an instruction returns new arrays, which share no memory with its arguments. Of others, as
    kernels and objects of Python, it isn't known what they return or keep."""
    row = row_of(i.name)
    return i.name == "loop" or (row is not None and row.is_new)


class LiveRanges:
    """When storages are read and written, by the numbers of instructions.

    Attributes:
        keeps: for each value the storages in which it may lie, or which it may keep alive.
        reads: for each storage the instructions that take a value which keeps it, in order.
        writes: for each storage the instructions that write to it.
    """

    def __init__(self, program: Program, instructions: Sequence[Instruction]):
        self.keeps = {value: {value} for value in (*program.inputs, *program.state, *program.constants)}
        self.reads: dict[Value, list[int]] = {}
        self.writes: dict[Value, list[int]] = {}
        for number, i in enumerate(instructions):
            taken = {storage for value in i.inputs() for storage in self.keeps.get(value, ())}
            for storage in taken:
                self.reads.setdefault(storage, []).append(number)
            for storage in i.written:
                self.writes.setdefault(storage, []).append(number)
            shared = set() if makes_new(i) else taken
            self.keeps |= {value: {value.storage} | shared for value in i.outputs}
