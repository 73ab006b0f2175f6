"""In which loops a result takes the place of an input that nothing reads any more."""

from __future__ import annotations

import numpy as np

from ...backends.meta.layout import layout
from .loop import FULL, Loop
from .program import Instruction, Program, Value

# Besides loops and ufuncs, these return new arrays, which share no memory with their arguments. What others
# return or keep, as kernels and objects of Python do, isn't known: what goes into them is left alone.
_NEW = {"sum", "max", "min", "mean", "prod", "all", "any", "where", "concatenate", "take", ".copy", "copy"}


def in_place(program: Program) -> dict[Instruction, tuple[int | None, ...]]:
    """Returns for loops the number of the input in whose memory each result is stored; None for new memory.

    The input is a whole array in C order that an instruction made, of the result's size and dtype; no name
    reaches its memory after the loop; and within the loop each element is read for the last time before the
    result's element is stored. Nothing outlives a call, so threads may run a program at once.
    """
    made = {value for i in program.instructions if _makes_new(i) for value in i.outputs if value.of is None}
    reach = _reach(program)
    death = {storage: number for number, i in enumerate(program.instructions)
             for value in (*i.inputs(), *i.outputs) for storage in reach[value]}  # fmt: skip
    for value in program.results():
        death |= dict.fromkeys(reach[value])
    for i in program.instructions:
        if i.name.startswith("host"):  # may keep it for another call
            death |= dict.fromkeys([storage for value in i.inputs() for storage in reach[value]])
    found = {}
    for number, i in enumerate(program.instructions):
        if i.name != "loop":
            continue
        dying = [
            k for k, x in enumerate(i.args)
            if x in made and death[x] == number and _is_c_order(x)
            and sum([x in reach[other] for other in i.args]) == 1
        ]  # fmt: skip
        places = _places(i.kwargs["loop"], i, dying)
        if any([place is not None for place in places]):
            found[i] = places
    return found


def _makes_new(i: Instruction) -> bool:
    ufunc = getattr(np, i.name.split(".")[0], None)
    return i.name == "loop" or i.name in _NEW or isinstance(ufunc, np.ufunc)


def _reach(program: Program) -> dict[Value, set[Value]]:
    """Returns the storages that each value may share, or keep alive."""
    found = {value: {value} for value in (*program.inputs, *program.state, *program.constants)}
    for i in program.instructions:
        inputs = () if _makes_new(i) else [storage for value in i.inputs() for storage in found[value]]
        for value in i.outputs:
            found[value] = {value.storage, *inputs}
    return found


def _places(loop: Loop, i: Instruction, dying: list[int]) -> tuple[int | None, ...]:
    places: list[int | None] = []
    for k, y in zip(loop.outputs, i.outputs, strict=True):
        place = None
        for x in dying:
            fits = loop.inputs[x] == FULL == loop.steps[k].kind and i.args[x].dtype == y.dtype
            if fits and x not in places and loop.is_read_before(x, k):
                place = x
                break
        places.append(place)
    return tuple(places)


def _is_c_order(x: Value) -> bool:
    return layout(x.shape, x.strides, x.dtype).flags.c_contiguous
