"""Computes once what is computed twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program


def merge_common_subexpressions(program: Program) -> Program:
    """Returns the program without instructions that repeat an earlier one.

    Those stay that write or call a Python object, whose result is returned (the caller gets an array of its
    own) or is written to later, and whose arguments have been written to in between.
    """
    changed = program.changed_storages()
    returned = {value.storage for value in program.results()}
    first: dict[tuple, Instruction] = {}
    same: dict[Value, Value] = {}
    kept = []
    writes: dict[Value, int] = {}  # so far, by storage

    def current(x: object) -> Any:
        return same.get(x, x) if isinstance(x, Value) else x

    for i in program.instructions:
        i = i.renamed(current)
        writes.update({value: writes.get(value, 0) + 1 for value in i.written})
        made = {value.storage for value in i.outputs}
        if i.written or i.is_host or made & returned or {y for y in i.outputs if y.of is None} & changed:
            kept.append(i)
            continue
        epochs = [writes.get(value.storage, 0) for value in i.inputs()]
        kwargs = {**i.kwargs, "error": "", "text": ""} if i.name == "check" else i.kwargs  # the first says it
        key = repr((i.name, i.args, sorted(kwargs.items()), epochs))  # values have numbers of their own
        if key in first:
            same.update(zip(i.outputs, first[key].outputs, strict=True))
        else:
            first[key] = i
            kept.append(i)
    return replace(program, instructions=kept, outputs=mapped(current, program.outputs))
