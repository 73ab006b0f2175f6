"""Which values of earlier loops are stored for a later one, and which it computes again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...backends.functions import row_of
from ...backends.functions.table import CONTRACTION
from ..memory.peak import nbytes_of
from ..program.instruction import Instruction, Value
from .minimum_cut import Network

if TYPE_CHECKING:
    from .stages import Stages

STORE = 1 << 60  # nothing is computed again
PRICES = STORE, 64, 1, 0  # of a byte that is read or written again
_BYTE = 4096  # the price of one that is stored
_EXPENSIVE = {"kernel", "kernel.vjp", "sort", "argsort"}  # and products
_FACTOR = 64  # their work for each byte that they read and write
_OPAQUE, _STALE, _ENDLESS = 1 << 120, 1 << 140, 1 << 160  # each is more than all that costs less
_SOURCE, _SINK = "source", "sink"


def crossing(stages: Stages, number: int, wanted: Iterable[Value], ran: set[Instruction]) -> list[Value]:
    """Returns the values of earlier loops that are stored for a loop: a minimum cut of the graph.

    What the loop takes must be there: it was stored, or its maker runs again in this loop, for which all
    that it takes must be there. In the graph an instruction is on the side of the sink if it runs again, a
    value if it must be there. The edge from an instruction to its result is cut where that is stored, and
    costs its bytes; that from the source is cut where the instruction runs again, and costs its work times
    the price of the stages.

    Source: the same graph chooses what PyTorch's compiler saves for backward passes,
    https://github.com/pytorch/pytorch/blob/main/torch/_functorch/partitioners.py

    Args:
        number: of the loop.
        wanted: what its instructions take that earlier loops make part by part.
        ran: the instructions of earlier loops; for others it costs nothing to run in this one.
    """
    graph, waiting = _Graph(stages, number, ran), [*wanted]
    for x in waiting:
        graph.network.add(x, _SINK, _ENDLESS)
    while waiting:
        waiting += graph.add(waiting.pop())
    return graph.stored()


class _Graph:
    """The values and instructions of earlier loops, as a network for a loop of this number."""

    def __init__(self, stages: Stages, number: int, ran: set[Instruction]):
        self.network, self._seen = Network(), set()
        self._stages, self._levels, self._number, self._ran = stages, stages.levels, number, ran

    def add(self, x: Value) -> list[Value]:
        """Adds a value, with its maker; returns what this takes."""
        i = self._levels.makers.get(x)
        if i is None or x in self._seen or x in self._stages.stored:  # what is there anyway costs nothing
            return []
        self._seen.add(x)
        cost = _BYTE * nbytes_of(x)
        if self._levels.dim_of(x) is None:  # an array that is there; but it may be deleted earlier
            self.network.add(_SOURCE, x, 0 if self._stages.until[x] >= self._number else cost)
            return []
        self.network.add(i, x, _OPAQUE if x.dtype.kind == "O" else cost)
        return [] if i in self._seen else self._add_instruction(i)

    def _add_instruction(self, i: Instruction) -> list[Value]:
        self._seen.add(i)
        self.network.add(_SOURCE, i, _cost_of(self._stages, i, self._number, self._ran))
        for x in i.inputs():
            self.network.add(x, i, _ENDLESS)
        return i.inputs()

    def stored(self) -> list[Value]:
        """Returns the values behind the minimum cut whose makers aren't."""
        behind, makers = self.network.behind_cut(_SOURCE, _SINK), self._levels.makers
        there = self._levels.dims_of([x for x in makers if x in self._seen and x in behind])
        return [x for x in there if makers[x] not in behind]


def _cost_of(stages: Stages, i: Instruction, number: int, ran: set[Instruction]) -> int:
    """Returns what it costs to run an instruction again."""
    if stages.levels.is_stale(i, number):
        return _STALE
    if i not in ran or all([y.of is not None for y in i.outputs]):  # views
        return 0
    work = sum([nbytes_of(x) for x in {*i.inputs(), *i.outputs} if x.dtype.kind != "O"])
    row = row_of(i.name)
    is_expensive = i.name in _EXPENSIVE or (row is not None and row.kind == CONTRACTION)
    return stages.price * work * (_FACTOR if is_expensive else 1)
