"""Removes instructions whose results are not used."""

from __future__ import annotations

from dataclasses import replace

from ...stream.instruction import BACKWARD
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import checking


def remove_dead_code(program: Program) -> Program:
    """Returns the program without instructions that neither contribute to the outputs nor write to its
    inputs or state, nor raise errors, as for an index that is out of bounds: see `checking`. The backward
    pass takes what the forward pass has checked."""
    changed = program.changed_storages()
    unread = {y for i in program.instructions if i.name == "host.grad" for y in i.outputs} - changed
    given = {*program.inputs, *program.state, *program.gradients()} - unread
    needed = {value.storage for value in [*program.results(), *given]} | {*program.results()}
    checks = {i for i in checking(program) if not i.origin.startswith(BACKWARD) or i.name == "check"}
    kept = []
    for instruction in reversed(program.instructions):
        touched = {*instruction.outputs, *instruction.written}  # a view that nothing takes changes nothing
        is_call = instruction.is_host and instruction.name != "host.grad"
        if needed.isdisjoint(touched) and not is_call and instruction not in checks:
            continue
        if instruction.name == "kernel.vjp":
            instruction = _without_unused(instruction, needed)
        kept.append(instruction)
        for value in instruction.inputs():
            needed |= {value, value.storage}
    constants = {value: raw for value, raw in program.constants.items() if value in needed}
    return replace(program, instructions=kept[::-1], constants=constants)


def _without_unused(i: Instruction, needed: set[Value]) -> Instruction:
    """Returns the vjp of a kernel without the gradients that are not needed."""
    kept = [k for k, y in enumerate(i.outputs) if y in needed or y.storage in needed]
    wanted = [*i.kwargs["wanted"].items()]
    kwargs = {**i.kwargs, "wanted": dict([wanted[k] for k in kept])}
    if "dtypes" in kwargs:
        kwargs["dtypes"] = tuple([kwargs["dtypes"][k] for k in kept])
    return replace(i, kwargs=kwargs, outputs=tuple([i.outputs[k] for k in kept]))
