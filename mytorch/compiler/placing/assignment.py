"""On which device each instruction of a program runs: where the fewest bytes cross, and all has room."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

from ...backends.device import device
from ..memory.peak import nbytes_of, size_text
from ..parts.minimum_cut import Network
from ..program.instruction import Instruction, Value
from ..program.program import Program
from .dataflow import Dataflow, is_placed
from .demand import Demand

_SHARES = (1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4)  # of the memory that estimates may fill
_ENDLESS = 1 << 62
_SOURCE, _SINK = "source", "sink"


@dataclass
class Assignment:
    """The devices of a program's instructions, by number.

    Attributes:
        devices: by the first instruction of a group: see `Dataflow`.
        homes: the device on which a value is made, or on which inputs and state lie; None for what a Python
            object makes, on the device of the program.
        copies: the devices to which a value is sent.
    """

    flow: Dataflow
    devices: dict[Instruction, int]
    homes: dict[Value, int | None] = field(default_factory=dict)
    copies: dict[Value, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        flow, program = self.flow, self.flow.program
        for x in (*program.inputs, *program.state):
            self.homes[x] = next(map(self.devices.__getitem__, flow.groups.get(x, ())), 0)
        for i in program.instructions:
            self.homes |= dict.fromkeys(i.outputs, self.device_of(i))
        for x in flow.groups.keys() - program.constants.keys():
            if found := {self.devices[group] for group in flow.groups[x]} - {self.homes[x]}:
                self.copies[x] = found

    def device_of(self, i: Instruction) -> int | None:
        """Returns the number of the device of an instruction; None for a call of a Python object."""
        return self.devices[self.flow.group[i]] if is_placed(i) else None

    def sent(self) -> dict[Value, int]:
        """Returns the bytes of each value that crosses between devices in each run."""
        return {x: len(k) * nbytes_of(x) for x, k in self.copies.items() if x not in self.flow.unchanged}

    def segments(self) -> list[tuple[int | None, list[Instruction]]]:
        """Returns instructions that run one after the other, with their device. A segment ends where a value
        is made that is sent, so that the copy can begin; a call of a Python object is one by itself. On one
        device all is one segment, if no object makes an array elsewhere."""
        if len(numbers := {*self.devices.values()}) == 1 and None not in self.homes.values():
            return [(*numbers, self.flow.program.instructions)]
        found, is_open = [], False
        for i in self.flow.program.instructions:
            number = self.device_of(i)
            if is_open and number is not None and found[-1][0] == number:
                found[-1][1].append(i)
            else:
                found.append((number, [i]))
            is_open = self.copies.keys().isdisjoint(i.outputs)
        return found


def assigned(program: Program, devices: list[device], room: list[float]) -> tuple[Assignment, list[int]]:
    """Returns the assignment in which the fewest bytes cross, of those in which each device has room, and the
    bytes that each needs.

    The forward pass is cut in its order, into one part for each device. All other instructions, as those of
    the backward pass, go where a minimum cut of the graph puts them. Where a device then needs more than was
    estimated, estimates may fill a smaller share of the memory.

    Args:
        room: the bytes that each device may hold.

    Raises:
        ValueError: no way was found; the message says what the one needs that lacks the fewest bytes.
    """
    flow = Dataflow(program)
    demand, weights = Demand(flow), flow.weights()
    costs, resident = _along(flow, demand, weights)

    def excess(needed: list[int]) -> float:
        return sum([max(used - limit, 0) for used, limit in zip(needed, room, strict=True)])

    ways = [_bounds(costs, resident, [share * limit for limit in room]) for share in _SHARES]
    least: list[int] = []
    for bounds in dict.fromkeys([*filter(None, ways), (len(resident),) * (len(room) - 1)]):
        found = Assignment(flow, _devices(flow, weights, bounds))
        needed = demand.peaks(found.homes, found.copies, found.segments(), len(room))
        if not excess(needed):
            return found, needed
        least = min(least or needed, needed, key=excess)
    rows = zip(least, room, devices, strict=True)
    figures = [f"{size_text(used)} of {size_text(limit)} on {x.full_name}" for used, limit, x in rows]
    raise ValueError(f"{program.name} doesn't fit its devices, it needs {', '.join(figures)}")


def _along(flow: Dataflow, demand: Demand, weights: dict[Value, int]) -> tuple[list[int], list[int]]:
    """Returns the bytes that cross before each anchor, and those that stay where an anchor runs: its state,
    and what it makes for the backward pass."""
    order = {group: k for k, group in enumerate(flow.anchors)}
    changes, resident = [0] * (len(order) + 2), [0] * len(order)
    for x, groups in flow.groups.items():
        places = sorted([order[group] for group in groups if group in order])
        if places:
            stays = x in demand.state or len(places) < len(groups)
            resident[places[0]] += demand.state.get(x, nbytes_of(x)) if stays else 0
            changes[places[0] + 1] += weights.get(x, 0)
            changes[places[-1] + 1] -= weights.get(x, 0)
    return [*accumulate(changes[:-1])], resident


def _bounds(costs: list[int], resident: list[int], capacities: list[float]) -> tuple[int, ...] | None:
    """Returns the first anchor of each device but the first, so that the costs there are the least in sum, of
    several such ways the one that fills the first devices; None if they can't hold what is resident."""
    end, before = len(resident), [0, *accumulate(resident)]
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # the cost, and minus the bounds
    for capacity in capacities:
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        for start, (cost, bounds) in best.items():
            for stop in range(start, end + 1):
                if before[stop] - before[start] > capacity:
                    break
                way = cost + costs[stop], (*bounds, -stop)
                found[stop] = min(way, found.get(stop, way))
        best = found
    return tuple([-bound for bound in best[end][1][:-1]]) if end in best else None


def _devices(flow: Dataflow, weights: dict[Value, int], bounds: tuple[int, ...]) -> dict[Instruction, int]:
    """Returns the device of each group: the number of minimum cuts, one at each bound, that it is behind."""
    found = dict.fromkeys(flow.group.values(), 0)
    for bound in bounds:
        fixed = {group: _SOURCE if k < bound else _SINK for k, group in enumerate(flow.anchors)}
        network = Network()
        for x, nbytes in weights.items():
            network.add((x, _SOURCE), (x, _SINK), nbytes)  # is cut where its groups are on both sides
            for node in {fixed.get(group, group) for group in flow.groups[x]}:
                network.add(node, (x, _SOURCE), _ENDLESS)
                network.add((x, _SINK), node, _ENDLESS)
        behind = network.behind_cut(_SOURCE, _SINK)
        for group in found:
            found[group] += not bound or fixed.get(group, group) in behind
    return found
