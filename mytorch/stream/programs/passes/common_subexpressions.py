"""Computes once what is computed twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..program import Instruction, Program, Value, mapped


def merge_common_subexpressions(program: Program) -> Program:
    """Returns the program without instructions that repeat an earlier one.

    Those that touch memory in which anything is written stay, and those whose result is returned: the caller
    gets an array of its own.
    """
    changed = program.changed_storages()
    returned = {value.storage for value in program.results()}
    first: dict[Any, Instruction] = {}
    same: dict[Value, Value] = {}
    kept = []

    def current(x: Any) -> Any:
        return same.get(x, x) if isinstance(x, Value) else x

    for i in program.instructions:
        i = Instruction(i.name, mapped(current, i.args), mapped(current, i.kwargs), i.outputs, i.written)
        storages = {value.storage for value in (*i.inputs(), *i.outputs)}
        if i.written or storages & changed or {value.storage for value in i.outputs} & returned:
            kept.append(i)
            continue
        key = repr((i.name, i.args, sorted(i.kwargs.items())))  # values have numbers of their own
        if key in first:
            same.update(zip(i.outputs, first[key].outputs, strict=True))
        else:
            first[key] = i
            kept.append(i)
    return replace(program, instructions=kept, outputs=mapped(current, program.outputs))
