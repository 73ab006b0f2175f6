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
    from .plan import Plan

STORE = 1 << 60  # nothing is computed again
PRICES = STORE, 64, 1, 0  # of a byte that is read or written again
_BYTE = 4096  # the price of one that is stored
_EXPENSIVE = {"kernel", "kernel.vjp", "sort", "argsort"}  # and products
_FACTOR = 64  # their work for each byte that they read and write
_OPAQUE, _STALE, _ENDLESS = 1 << 120, 1 << 140, 1 << 160  # each is more than all that costs less
_SOURCE, _SINK = "source", "sink"


def crossing(plan: Plan, number: int, wanted: Iterable[Value], ran: set[Instruction]) -> list[Value]:
    """Returns the values of earlier loops that are stored for a loop: a minimum cut of the graph.

    What the loop takes must be there: it was stored, or its maker runs again in this loop, for which all
    that it takes must be there. In the graph an instruction is on the side of the sink if it runs again, a
    value if it must be there. The edge from an instruction to its result is cut where that is stored, and
    costs its bytes; that from the source is cut where the instruction runs again, and costs its work times
    the plan's price.

    Source: the same graph chooses what PyTorch's compiler saves for backward passes,
    https://github.com/pytorch/pytorch/blob/main/torch/_functorch/partitioners.py

    Args:
        number: of the loop.
        wanted: what its instructions take that earlier loops make part by part.
        ran: the instructions of earlier loops; for others it costs nothing to run in this one.
    """
    network, waiting, seen = Network(), [*wanted], set()
    for x in waiting:
        network.add(x, _SINK, _ENDLESS)
    while waiting:
        x = waiting.pop()
        i = plan.makers.get(x)
        if i is None or x in seen or x in plan.stored:  # what is there anyway costs nothing
            continue
        seen.add(x)
        if plan.dim_of(x) is None:  # an array that is there; but it may be deleted earlier
            network.add(_SOURCE, x, 0 if plan.until[x] >= number else _BYTE * nbytes_of(x))
            continue
        network.add(i, x, _OPAQUE if x.dtype.kind == "O" else _BYTE * nbytes_of(x))
        if i not in seen:
            seen.add(i)
            network.add(_SOURCE, i, _cost_of(plan, i, number, ran))
            for y in i.inputs():
                network.add(y, i, _ENDLESS)
            waiting += i.inputs()
    behind = network.behind_cut(_SOURCE, _SINK)
    there = [x for x in plan.makers if x in seen and x in behind and plan.dim_of(x) is not None]
    return [x for x in there if plan.makers[x] not in behind]


def _cost_of(plan: Plan, i: Instruction, number: int, ran: set[Instruction]) -> int:
    """Returns what it costs to run an instruction again."""
    if plan.is_stale(i, number):
        return _STALE
    if i not in ran or all([y.of is not None for y in i.outputs]):  # views
        return 0
    work = sum([nbytes_of(x) for x in {*i.inputs(), *i.outputs} if x.dtype.kind != "O"])
    row = row_of(i.name)
    is_expensive = i.name in _EXPENSIVE or (row is not None and row.kind == CONTRACTION)
    return plan.price * work * (_FACTOR if is_expensive else 1)
