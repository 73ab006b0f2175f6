"""Moves the storing of small gradients down, to where something needs it: loops don't move past it."""

from __future__ import annotations

from dataclasses import replace

from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import raising

_SMALL = 1 << 14  # elements; a large gradient is better stored at once, which frees its memory


def sink_gradients(program: Program) -> Program:
    """Returns the program with each `host.set_grad` of few elements before the next call of another object,
    instruction that may raise an error, or use of the stored gradient, or at the end.

    %3 = host.set_grad(<p>, %1); %4 = exp(%2)     becomes     %4 = exp(%2); %3 = host.set_grad(<p>, %1)
    """
    instructions: list[Instruction] = []
    ends = raising(program)
    waiting: list[Instruction] = []
    stored: set[Value] = set()
    for i in program.instructions:
        if i.name == "host.set_grad" and i.outputs and i.outputs[0].size <= _SMALL:
            waiting.append(i)
            stored |= {*i.outputs}
            continue
        is_used = not stored.isdisjoint([x.storage for x in i.inputs()])
        if i.is_host or i in ends or is_used or _writes(i, waiting):
            instructions += waiting
            waiting, stored = [], set()
        instructions.append(i)
    return replace(program, instructions=instructions + waiting)


def _writes(i: Instruction, waiting: list[Instruction]) -> bool:
    """Whether an instruction writes to a gradient that is yet to be stored."""
    written = {*i.written}
    return bool(written) and not written.isdisjoint([x.storage for j in waiting for x in j.inputs()])
