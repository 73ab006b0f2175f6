"""The memory that a program needs on each of several devices."""

from __future__ import annotations

from itertools import accumulate
from typing import TypeAlias

from ..memory.peak import memory, nbytes_of
from ..program.instruction import Instruction, Value
from ..program.program import Program
from .dataflow import Dataflow

Segment: TypeAlias = tuple[int | None, list[Instruction]]  # the number of a device, and what runs there


class Demand:
    """The memory that a program needs.

    Attributes:
        state: the bytes of each array of the state, with the moments that optimizers keep for it.
    """

    def __init__(self, flow: Dataflow):
        self._made: dict[Value, tuple[int, int]] = {}  # by which instruction, and the bytes
        self._last: dict[Value, int] = {}  # the last instruction that needs it
        program = flow.program
        self._end = len(program.instructions)
        for number, i in enumerate(program.instructions):
            self._last |= dict.fromkeys([flow.base(x) for x in (*i.inputs(), *i.outputs)], number)
            self._made |= {y: (number, _bytes_of_output(y, i)) for y in i.outputs if flow.base(y) is y}
        self._last |= dict.fromkeys(map(flow.base, (*program.results(), *program.gradients())), self._end)
        for i in [i for i in reversed(program.instructions) if i.name == "kernel"]:  # it saves its arguments
            stop = self._last[i.outputs[-1]]
            self._last |= {x: max(stop, self._last[x]) for x in map(flow.base, i.inputs())}
        moments = _moments(program)
        self.state = {x: nbytes_of(x) * (1 + moments.get(x, 0)) for x in program.state}

    def peaks(
        self, homes: dict[Value, int | None], copies: dict[Value, set[int]], segments: list[Segment],
        count: int,
    ) -> list[int]:
        """Returns the bytes that each of some devices needs, at the most at a time, by an `Assignment`.

        Values that a segment takes live until it ends; values that cross, until the run ends.
        """
        found = [_Timeline(self._end) for _ in range(count)]
        ends = _ends(segments, self._end)
        for x, number in homes.items():
            timelines = found if number is None else [found[number]]
            for timeline in timelines if x.of is None else ():
                timeline.hold(*self._life(x, ends, x in copies))
        for x, numbers in copies.items():
            for number in numbers:
                found[number].hold(nbytes_of(x), self._made[x][0] if x in self._made else 0)
        return [timeline.peak() for timeline in found]

    def _life(self, x: Value, ends: list[int], crosses: bool) -> tuple[int, int, int]:
        """Returns the bytes of an array, and the first and last instruction while it is there."""
        if x not in self._made:
            return self.state.get(x, nbytes_of(x)), 0, self._end
        start, nbytes = self._made[x]
        stop = self._end if crosses else self._last[x]
        return nbytes, start, stop if ends[stop] == ends[start] else ends[stop]


def _ends(segments: list[Segment], end: int) -> list[int]:
    """Returns for each instruction, by its number, the last one of its segment."""
    found: list[int] = []
    for _, instructions in segments:
        found += [len(found) + len(instructions) - 1] * len(instructions)
    return [*found, end]


class _Timeline:
    """The bytes that are held on a device while a program runs, as changes before each instruction."""

    def __init__(self, end: int):
        self._changes = [0] * (end + 2)

    def hold(self, nbytes: int, start: int = 0, stop: int = -2) -> None:
        """Adds bytes that are held from an instruction to another one, by default to the end."""
        self._changes[start] += nbytes
        self._changes[stop + 1] -= nbytes

    def peak(self) -> int:
        return max(accumulate(self._changes))


def _bytes_of_output(y: Value, i: Instruction) -> int:
    """Returns the bytes of a result; of what a kernel saves, those of the arrays that it makes for it."""
    if i.name != "kernel" or y is not i.outputs[-1]:
        return nbytes_of(y)
    alone = Program(tuple(dict.fromkeys(i.inputs())), {}, {}, [i], i.outputs)
    return sum([x.nbytes for x in memory(alone).held if x.value is y])


def _moments(program: Program) -> dict[Value, int]:
    """Returns how many arrays of its size optimizers keep for each parameter."""
    counts = {}
    for optimizer in [i.args[0].target for i in program.instructions if i.name == "host.step"]:
        for group in optimizer.param_groups:
            counts |= dict.fromkeys(map(id, group["params"]), len(optimizer.state_names(group)))
    return {x: counts.get(id(owner()), 0) for x, owner in program.owners.items()}
