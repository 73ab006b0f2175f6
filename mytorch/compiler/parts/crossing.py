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
    levels, network, seen = stages.levels, Network(), set()
    for x in wanted:
        network.add(x, _SINK, _ENDLESS)
    waiting = [*wanted]
    while waiting:
        x = waiting.pop()
        i = levels.makers.get(x)
        if i is None or x in seen or x in stages.stored:  # what is there anyway costs nothing
            continue
        seen.add(x)
        if levels.dim_of(x) is None:  # an array that is there; but it may be deleted earlier
            network.add(_SOURCE, x, 0 if stages.until[x] >= number else _BYTE * nbytes_of(x))
            continue
        network.add(i, x, _OPAQUE if x.dtype.kind == "O" else _BYTE * nbytes_of(x))
        if i not in seen:
            seen.add(i)
            waiting += _add_inputs(network, i, _cost_of(stages, i, number, ran))
    behind = network.behind_cut(_SOURCE, _SINK)
    there = levels.dims_of([x for x in levels.makers if x in seen and x in behind])
    return [x for x in there if levels.makers[x] not in behind]


def _add_inputs(network: Network, i: Instruction, cost: int) -> list[Value]:
    """Adds an instruction that may run again with what it takes, and returns this."""
    network.add(_SOURCE, i, cost)
    for x in i.inputs():
        network.add(x, i, _ENDLESS)
    return i.inputs()


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
