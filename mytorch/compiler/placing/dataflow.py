"""What the instructions of a program send to each other, for a cut between devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import takewhile

from ...stream.instruction import BACKWARD
from ..memory.peak import nbytes_of
from ..program.instruction import Instruction, Value
from ..program.program import Program

_OF_A_PARAMETER = ("host.grad", "host.set_grad", "host.add_grad")


def is_placed(i: Instruction) -> bool:
    """Whether an instruction runs on one device: not steps of optimizers, clipping and random draws."""
    return not i.is_host or i.name in _OF_A_PARAMETER


class Dataflow:
    """The instructions of a program in groups, and what crosses between these.

    Those of a group run on one device, as what they share isn't copied: a kernel and its vjp, a view and what
    takes it, all that use an array to which one of them writes, and what reads or accumulates the gradient of
    a parameter.

    Attributes:
        group: by instruction, the first one of its group.
        groups: by value, the groups that make or take it; of a parameter first the one of its gradient.
        anchors: the groups of the forward pass, in order.
        unchanged: the state to which nothing writes: copies of it on other devices are made once.
    """

    def __init__(self, program: Program):
        self.program, self._bases = program, program.bases()
        placed = [*filter(is_placed, program.instructions)]
        self._fixed = {self.base(x) for i in placed for x in i.written} | {*program.gradients()}
        self.unchanged = program.state.keys() - program.changed_storages()
        self.group = _joined({i: self._ties(i) for i in placed})
        self.groups = self._groups_of_values(placed)
        forward = takewhile(lambda i: not i.origin.startswith(BACKWARD), placed)
        computing = [i for i in forward if any([y.of is None for y in i.outputs])]  # views may come earlier
        self.anchors = [*dict.fromkeys([self.group[i] for i in computing])]

    def _groups_of_values(self, placed: list[Instruction]) -> dict[Value, dict[Instruction, None]]:
        owners = {id(owner()): x for x, owner in self.program.owners.items()}
        found: dict[Value, dict[Instruction, None]] = {}
        for i in placed:
            group = {self.group[i]: None}
            for x in [x for x in (*i.inputs(), *i.outputs) if x.dtype.kind != "O"]:
                found[x] = found.get(x, {}) | group
            if i.is_host and (parameter := owners.get(id(i.args[0].target))) is not None:
                found[parameter] = group | found.get(parameter, {})
        return found

    def base(self, x: Value) -> Value:
        """Returns the value in whose memory another one lies."""
        return self._bases.get(x, x)

    def weights(self) -> dict[Value, int]:
        """Returns the bytes of each value that several groups use, and that is sent in each run."""
        once = self.unchanged | self.program.constants.keys()
        return {x: nbytes_of(x) for x, groups in self.groups.items() if len(groups) > 1 and x not in once}

    def _ties(self, i: Instruction) -> Iterator[Hashable]:
        """Yields what an instruction shares with the others of its group."""
        if i.is_host:
            yield id(i.args[0].target)
        for x in (*i.inputs(), *i.outputs):
            if self.base(x) in self._fixed:
                yield self.base(x)
            elif x.dtype.kind == "O" or x.of is not None:
                yield x


def _joined(ties: Mapping[Instruction, Iterable[Hashable]]) -> dict[Instruction, Instruction]:
    """Returns the first of those that are tied to each instruction, also by others."""
    first, order = {i: i for i in ties}, {i: k for k, i in enumerate(ties)}
    holder: dict[Hashable, Instruction] = {}

    def root(i: Instruction) -> Instruction:
        while first[i] is not i:
            i = first[i]
        return i

    for i, shared in ties.items():
        for tie in shared:
            a, b = sorted([root(i), root(holder.setdefault(tie, i))], key=order.__getitem__)
            first[b] = a
    return {i: root(i) for i in ties}
