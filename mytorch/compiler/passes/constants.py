"""Computes once, now, what each run would compute again: `arange(32)`, `ones_like(%37)`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ops.bounds import is_within
from ...utils.nested import leaves
from ..codegen.python_source import computed
from ..program.instruction import Instruction, Value
from ..program.program import Program

_OF_SHAPES = {"ones_like", "zeros_like", "full_like"}  # of arrays, what counts is their shape and dtype
_CREATION = {"zeros", "ones", "full", "arange", "eye", "tri"}
_LARGEST = 1 << 16  # elements


def fold_constants(program: Program) -> Program:
    """Returns the program with arrays in place of instructions whose results are always the same.

    %1 = arange(8); %2 = multiply(%1, 2); %3 = add(%0, %2)     becomes     %3 = add(%0, %2), %2 a constant

    What is written in place, or returned, is made again in each run.
    """
    changed = program.changed_storages() | {value.storage for value in program.results()}
    constants, instructions = {**program.constants}, []
    for i in program.instructions:
        if i.name == "check" and i.args[0] in constants and _passes(i, constants[i.args[0]]):
            continue
        if _is_foldable(i) and _is_known(i, constants) and changed.isdisjoint([y.storage for y in i.outputs]):
            (value,) = i.outputs
            constants[value] = computed(_without_arrays(i), constants)
        else:
            instructions.append(i)
    return replace(program, instructions=instructions, constants=constants)


def _is_foldable(i: Instruction) -> bool:
    """Whether an instruction is a function with one array as its result, which isn't large."""
    if i.written or i.is_host or i.name.startswith("kernel") or i.name == "loop" or len(i.outputs) != 1:
        return False
    return i.outputs[0].size <= _LARGEST and not any([x.dtype.kind == "O" for x in (*i.inputs(), *i.outputs)])


def _is_known(i: Instruction, constants: dict[Value, np.ndarray]) -> bool:
    """Whether all arrays are known on which the result depends."""
    inputs = i.inputs()
    if i.name in _OF_SHAPES:
        return i.outputs[0].is_c_order and all([x in constants for x in inputs[1:]])
    return all([x in constants for x in inputs]) and (i.name in _CREATION or bool(inputs))


def _passes(i: Instruction, x: np.ndarray) -> bool:
    """Whether a check raises no error."""
    return is_within(x, i.kwargs["low"], i.kwargs["high"])


def _without_arrays(i: Instruction) -> Instruction:
    """Returns `full_like` and its kin without the arrays of which they take the shape."""
    if i.name not in _OF_SHAPES:
        return i
    value = i.outputs[0]
    fill = [x for x in leaves((i.args[1:], i.kwargs.get("fill_value"))) if not isinstance(x, (type, str))]
    number = {"ones_like": 1, "zeros_like": 0}.get(i.name, fill[0] if fill else 0)
    return replace(i, name="full", args=(value.shape, number, value.dtype), kwargs={})
