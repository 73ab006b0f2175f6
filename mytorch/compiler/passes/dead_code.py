"""Removes instructions whose results are not used."""

from __future__ import annotations

from dataclasses import replace

from ...stream.instruction import BACKWARD
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import checking


def remove_dead_code(program: Program) -> Program:
    """Returns the program without instructions that neither contribute to the outputs nor write to its
    inputs or state, nor raise errors, as for an index that is out of bounds: see `checking`.

    %2 = exp(%0); %3 = sin(%0); return %3     becomes     %3 = sin(%0); return %3
    """
    needed, has_to_run, instructions = _needed_at_the_end(program), _have_to_run(program), []
    for i in reversed(program.instructions):
        touched = (*i.outputs, *i.written)  # a view that nothing takes changes nothing
        if i in has_to_run or not needed.isdisjoint(touched):
            i = _without_unused(i, needed) if i.name == "kernel.vjp" else i
            instructions.append(i)
            needed.update(*[(x, x.storage) for x in i.inputs()])
    constants = {value: raw for value, raw in program.constants.items() if value in needed}
    return replace(program, instructions=instructions[::-1], constants=constants)


def _needed_at_the_end(program: Program) -> set[Value]:
    """Returns results, and the storages of results, inputs, state and gradients, unless a gradient was only
    read."""
    read = {y for i in program.instructions if i.name == "host.grad" for y in i.outputs}
    gradients = {*program.gradients()} - (read - program.changed_storages())
    results = program.results()
    return {*results, *[x.storage for x in (*results, *program.inputs, *program.state, *gradients)]}


def _have_to_run(program: Program) -> set[Instruction]:
    """Returns calls of Python objects, and what raises errors; the backward pass takes what the forward pass
    has checked."""
    calls = {i for i in program.instructions if i.is_host and i.name != "host.grad"}
    return calls | {i for i in checking(program) if not i.origin.startswith(BACKWARD) or i.name == "check"}


def _without_unused(i: Instruction, needed: set[Value]) -> Instruction:
    """Returns the vjp of a kernel without the gradients that are not needed."""
    positions = [k for k, y in enumerate(i.outputs) if y in needed or y.storage in needed]
    wanted = [*i.kwargs["wanted"].items()]
    kwargs = {**i.kwargs, "wanted": dict([wanted[k] for k in positions])}
    if "dtypes" in kwargs:
        kwargs["dtypes"] = tuple([kwargs["dtypes"][k] for k in positions])
    return replace(i, kwargs=kwargs, outputs=tuple([i.outputs[k] for k in positions]))
