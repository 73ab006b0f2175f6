"""Buffer reuse: in which loops a result takes the place of an input that is to be overwritten by it."""

from __future__ import annotations

from dataclasses import replace

from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import raising
from .live_ranges import LiveRanges, makes_new


def in_place(program: Program, instructions: list[Instruction]) -> list[Instruction]:
    """Returns the instructions, with `places` in loops: the inputs in whose memory results are stored, as
    `x[...] = y` follows.

    Such an input is a whole array in C order, of the result's size and dtype; the loop reads each of its
    elements before it stores there, nothing reads x between the two, and y is neither written nor kept.
    """
    reuse, places, done = _Reuse(program, instructions), {}, set()
    for number, i in enumerate(instructions):
        found = reuse.place_of(i, number)
        if found is not None and found[1] not in (inputs := places.setdefault(found[0], {})):
            inputs[found[1]] = found[2]
            done.add(number)
    return [_placed(i, places.get(number)) for number, i in enumerate(instructions) if number not in done]


def _placed(i: Instruction, places: dict[int, int] | None) -> Instruction:
    if not places:
        return i
    loop = replace(i.kwargs["loop"], places=tuple(places.items()))
    return replace(i, kwargs={**i.kwargs, "loop": loop})


class _Reuse:
    """What an instruction `x[...] = y` needs to be done by the loop that makes y."""

    def __init__(self, program: Program, instructions: list[Instruction]):
        self._instructions, self._ranges = instructions, LiveRanges(program, instructions)
        self._loops = {y: k for k, i in enumerate(instructions) if i.name == "loop" for y in i.outputs}
        # What a caller, or a Python object, gets may be kept for another call.
        self._escaping = {*program.results(), *[x for i in instructions if i.is_host for x in i.inputs()]}
        ends = raising(replace(program, instructions=instructions))
        self._barriers = {k for k, i in enumerate(instructions) if i.is_host or i in ends}

    def place_of(self, i: Instruction, number: int) -> tuple[int, int, int] | None:
        """Returns the loop, the step, and the input in whose memory it can store what `i` stores."""
        if i.name != ".setitem" or i.args[1] is not ... or i.args[2] not in self._loops:
            return None
        x, _, y = i.args
        at = self._loops[y]
        call = self._instructions[at]
        loop, k = call.kwargs["loop"], call.kwargs["loop"].outputs[call.outputs.index(y)]
        positions = [q for q, z in enumerate(call.args) if x in self._ranges.keeps[z]]
        is_same = x.is_c_order and (x.shape, x.dtype) == (y.shape, y.dtype)
        if not is_same or [call.args[q] for q in positions] != [x] or not loop.may_store(k, positions[0]):
            return None
        return (at, k, positions[0]) if self._is_free(x, at, number) and self._is_private(y) else None

    def _is_free(self, x: Value, start: int, end: int) -> bool:
        """Whether an array is written once, and not read, nor seen by anyone, between two instructions."""
        between = range(start + 1, end)
        is_read = any([k in between for k in self._ranges.reads[x]])
        return len(self._ranges.writes[x]) == 1 and not is_read and self._barriers.isdisjoint(between)

    def _is_private(self, y: Value) -> bool:
        """Whether an array is neither written nor kept by what takes it."""
        users = [self._instructions[k] for k in self._ranges.reads.get(y.storage, ())]
        is_kept = any([not makes_new(i) and i.name != ".setitem" for i in users])
        return not is_kept and y not in self._escaping and y not in self._ranges.writes
