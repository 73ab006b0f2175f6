"""Fuses chains of elementwise functions, broadcasts, sums of rows and of columns into loops."""

from __future__ import annotations

from dataclasses import replace

from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import raising
from .domain import domain_of
from .grouping import Group

_WINDOW = 24  # instructions that wait for a loop before it is closed


def fuse(program: Program) -> Program:
    """Returns the program with loops in place of what they compute.

    %1 = exp(%0); %2 = multiply(%1, 3)     becomes     %2 = loop: v0 = exp(%0); %2 = multiply(v0, 3)

    A loop takes what it can of the next instructions. Those that depend on its results come after it; those
    that don't, and that are no part of any loop, before it. Nothing is moved across what writes in place or
    calls a Python object.
    """
    fused = _Fused(program)
    for i in program.instructions:
        if i.written or i.is_host:
            fused.close()
            fused.instructions.append(i)
        else:
            fused.add(i)
    fused.close()
    return replace(program, instructions=fused.instructions)


class _Fused:
    """The instructions so far, the loop that is being put together, and those that wait for it."""

    def __init__(self, program: Program):
        self.instructions: list[Instruction] = []
        self._group: Group | None = None
        self._later: list[Instruction] = []
        self._waiting: set[Value] = set()  # the results of these
        self._program = program
        self._uses, self._results = program.uses(), {*program.results()}
        self._ends = raising(program)  # errors are raised in their order
        self._makers = program.makers()

    def add(self, i: Instruction) -> None:
        if self._group is None:
            self._begin(i)
            return
        inputs = i.inputs()
        waits = not self._waiting.isdisjoint(inputs)
        waits = waits or (i in self._ends and not self._ends.isdisjoint(self._later))
        if not waits and self._group.accepts(i):
            return
        if not waits and self._group.made.isdisjoint(inputs) and domain_of(i) is None:
            self.instructions.append(i)
            return
        self._later.append(i)
        self._waiting.update(i.outputs)
        if len(self._later) >= _WINDOW:
            self._close_group()

    def close(self) -> None:
        """Closes the loop, and all loops of instructions that wait."""
        while self._group is not None:
            self._close_group()

    def _begin(self, i: Instruction) -> None:
        domain = None if self._becomes_grad(i) else domain_of(i)
        group = None if domain is None else Group(domain, self._program, self._makers)
        if group is not None and group.accepts(i):
            self._group = group
        else:
            self.instructions.append(i)

    def _becomes_grad(self, i: Instruction) -> bool:
        """Whether it is a sum of gradients, which is added to `.grad` in place."""
        users = self._uses.get(i.outputs[0], []) if i.name == "add" else []
        return bool(users) and all([user.name == "host.set_grad" for user in users])

    def _close_group(self) -> None:
        group, later = self._group, self._later
        self._group, self._later, self._waiting = None, [], set()
        inside = {*group.originals}
        self.instructions += group.closed([
            value for value in group.refs
            if value in group.made and (
                value in self._results or any([user not in inside for user in self._uses.get(value, ())])
            )
        ])
        for i in later:
            self.add(i)
