"""In which loops a result takes the place of an input that nothing reads any more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends.meta.layout import layout
from .loop import FULL, Loop
from .program import Instruction, Program, Value

# Besides loops and ufuncs, these return new arrays, which share no memory with their arguments. What others
# return or keep, as kernels and objects of Python do, isn't known: what goes into them is left alone.
_NEW = {
    "sum", "max", "min", "mean", "prod", "all", "any", "cumsum", "where", "concatenate", "take", ".copy",
}  # fmt: skip


def in_place(program: Program, instructions: list[Instruction]) -> list[Instruction]:
    """Returns the instructions, with `places` in loops: the inputs in whose memory results are stored.

    Such an input is a whole array in C order that an instruction made, of the result's size and dtype; no
    name reaches its memory after the loop; and the loop reads each of its elements before it stores there.
    Nothing outlives a call, so threads may run a program at once.
    """
    made = {value for i in instructions if _makes_new(i) for value in i.outputs if value.of is None}
    reach = _reach(program, instructions)
    death = {storage: number for number, i in enumerate(instructions)
             for value in (*i.inputs(), *i.outputs) for storage in reach[value]}  # fmt: skip
    escaping = [*program.results(), *[value for i in instructions if i.is_host for value in i.inputs()]]
    for value in escaping:  # a Python object may keep it for another call
        death |= dict.fromkeys(reach[value])
    found = []
    for number, i in enumerate(instructions):
        if i.name == "loop":
            dying = [
                k for k, x in enumerate(i.args)
                if x.storage in made and death[x.storage] == number and reach[x] == {x.storage}
                and _is_whole(x) and sum([x.storage in reach[other] for other in i.args]) == 1
            ]  # fmt: skip
            loop = i.kwargs["loop"]
            i = replace(i, kwargs={**i.kwargs, "loop": replace(loop, places=_places(loop, i, dying))})
        found.append(i)
    return found


def _makes_new(i: Instruction) -> bool:
    ufunc = getattr(np, i.name.split(".")[0], None)
    return i.name == "loop" or i.name in _NEW or isinstance(ufunc, np.ufunc)


def _reach(program: Program, instructions: list[Instruction]) -> dict[Value, set[Value]]:
    """Returns the storages that each value may share, or keep alive."""
    found = {value: {value} for value in (*program.inputs, *program.state, *program.constants)}
    for i in instructions:
        inputs = () if _makes_new(i) else [storage for value in i.inputs() for storage in found[value]]
        for value in i.outputs:
            found[value] = {value.storage, *inputs}
    return found


def _places(loop: Loop, i: Instruction, dying: list[int]) -> tuple[tuple[int, int], ...]:
    places: dict[int, int] = {}
    for k, y in zip(loop.outputs, i.outputs, strict=True):
        for x in dying:
            fits = loop.inputs[x] == FULL == loop.steps[k].kind and i.args[x].dtype == y.dtype
            if fits and x not in places.values() and loop.is_read_first(x):
                places[k] = x
                break
    return tuple(places.items())


def _is_whole(x: Value) -> bool:
    """Whether it is all of its storage, in C order."""
    is_c_order = layout(x.shape, x.strides, x.dtype).flags.c_contiguous
    return is_c_order and (x.size, x.dtype) == (x.storage.size, x.storage.dtype)
