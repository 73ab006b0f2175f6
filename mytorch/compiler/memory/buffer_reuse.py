"""In which loops a result takes the place of an input that is to be overwritten by it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...backends.functions import row_of
from ...backends.meta.layout import layout
from ..codegen.loop import FULL, Loop
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import raising


def in_place(program: Program, instructions: list[Instruction]) -> list[Instruction]:
    """Returns the instructions, with `places` in loops: the inputs in whose memory results are stored, as
    `x[...] = y` follows.

    Such an input is a whole array in C order, of the result's size and dtype; the loop reads each of its
    elements before it stores there, nothing reads x between the two, and y is neither written nor kept.
    """
    reach = _reach(program, instructions)
    # A Python object may keep what it gets for another call.
    escaping = {*program.results(), *[value for i in instructions if i.is_host for value in i.inputs()]}
    stores = _stores(instructions, reach, escaping, raising(replace(program, instructions=instructions)))
    found = []
    for number, i in enumerate(instructions):
        if number in stores.values():
            continue
        if i.name == "loop":
            places = tuple([(k, x) for at, k, x in stores if at == number])
            i = replace(i, kwargs={**i.kwargs, "loop": replace(i.kwargs["loop"], places=places)})
        found.append(i)
    return found


def _makes_new(i: Instruction) -> bool:
    """Whether it returns new arrays, which share no memory with its arguments. What others return or keep, as
    kernels and objects of Python do, isn't known: what goes into them is left alone."""
    row = row_of(i.name)
    return i.name == "loop" or (row is not None and row.is_new)


def _reach(program: Program, instructions: list[Instruction]) -> dict[Value, set[Value]]:
    """Returns the storages that each value may share, or keep alive."""
    found = {value: {value} for value in (*program.inputs, *program.state, *program.constants)}
    for i in instructions:
        inputs = () if _makes_new(i) else [storage for value in i.inputs() for storage in found[value]]
        for value in i.outputs:
            found[value] = {value.storage, *inputs}
    return found


def _fits(loop: Loop, i: Instruction, k: int, y: Value, x: int) -> bool:
    """Whether the result y of step k may be stored in the memory of input x."""
    is_full = loop.inputs[x] == FULL == loop.steps[k].kind
    return is_full and i.args[x].dtype == y.dtype and loop.is_read_first(x)


def _stores(
    instructions: list[Instruction], reach: dict[Value, set[Value]], escaping: set[Value],
    ends: set[Instruction],
) -> dict[tuple[int, int, int], int]:  # fmt: skip
    """Returns (loop, step, input) for what `x[...] = y` may do, and the number of that instruction."""
    writes = Counter([x for i in instructions for x in i.written])
    loops = {y: number for number, i in enumerate(instructions) if i.name == "loop" for y in i.outputs}
    found: dict[tuple[int, int, int], int] = {}
    for number, i in enumerate(instructions):
        if i.name != ".setitem" or i.args[1] is not ... or i.args[2] not in loops:
            continue
        x, _, y = i.args
        at = loops[y]
        loop, call = instructions[at].kwargs["loop"], instructions[at]
        between = instructions[at + 1 : number]
        users = [j for j in instructions if any([y.storage in reach[value] for value in j.inputs()])]
        is_read = any([j.is_host or any([x in reach[value] for value in j.inputs()]) for j in between])
        is_held = y in escaping or any([not _makes_new(j) and j.name != ".setitem" for j in users])
        is_late = is_read or not ends.isdisjoint(between)
        if is_late or is_held or writes[x] != 1 or writes[y] or not _is_whole(x) or x.shape != y.shape:
            continue
        k, given = loop.outputs[call.outputs.index(y)], [q for q, z in enumerate(call.args) if x in reach[z]]
        is_first = (at, k) not in [key[:2] for key in found]
        if is_first and len(given) == 1 and call.args[given[0]] is x and _fits(loop, call, k, y, given[0]):
            found[at, k, given[0]] = number
    return found


def _is_whole(x: Value) -> bool:
    """Whether it is all of its storage, in C order."""
    is_c_order = layout(x.shape, x.strides, x.dtype).flags.c_contiguous
    return is_c_order and (x.size, x.dtype) == (x.storage.size, x.storage.dtype)
