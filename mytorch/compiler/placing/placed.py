"""Programs on several devices: see `Program.placed`."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product, starmap
from math import inf
from typing import Any, NoReturn

import numpy as np

from ...backends.device import DeviceLike, RawArray, device_count, device_of, is_raw
from ...backends.kinds import GPU
from ...core.op import as_raw
from ...core.overriding import overriding
from ...core.tensor import Tensor, from_raw, raw_of
from ...utils.nested import mapped
from ..memory.peak import size_text
from ..parts.limits import Limit, limits_of
from ..passes.strides import dense_order
from ..program.instruction import Instruction, Value
from ..program.program import Program, described, fits
from ..running.movers import movers, settle
from .assignment import assigned
from .transfers import Transfers
from .values import State, Values


class Placed:
    """A program whose instructions run on several devices: see `Program.placed`.

    Attributes:
        devices: those that were given.
        limits, needed: the bytes that each may hold, and that it needs, at the most at a time.
        nbytes: the bytes that cross between devices in each run.
    """

    def __init__(
        self, program: Program, devices: Sequence[DeviceLike] | Mapping[DeviceLike, Limit],
        memory: Limit | Mapping[DeviceLike, Limit] | None = None,
    ):
        _check(program)
        self.name, self.inputs, self._program = program.name, program.inputs, program
        self.devices, self.limits = limits_of(devices, memory)
        self._assignment, self.needed = assigned(program, self.devices, self.limits)
        self.nbytes = sum(self._assignment.sent().values())
        self._movers, self._transfers = movers(program), Transfers()
        self._state = State(program, self._assignment.homes, self.devices, self._transfers)
        self._segments = [*self._parts()]

    def __str__(self) -> str:
        sent, copies = self._assignment.sent(), self._assignment.copies
        count = sum([len(copies[x]) for x in sent])
        lines = [f"{self.name}: {count} copies of {size_text(self.nbytes)} between devices in a run"]
        for x, needed, limit in zip(self.devices, self.needed, self.limits, strict=True):
            of = "" if limit == inf else f" of {size_text(limit)}"
            lines.append(f"  {x.full_name}: needs {size_text(needed)}{of}")
        for _, segment, _ in self._segments:
            lines += [f"on {segment.device.full_name}:", *[f"  {i}" for i in segment.instructions]]
            for y in [y for y in segment.outputs if y in sent]:
                targets = ", ".join([self.devices[k].full_name for k in sorted(copies[y])])
                lines.append(f"  -> {targets}: {y.described()} ({size_text(sent[y])})")
        return "\n".join(lines)

    def __call__(self, *tensors: Tensor | RawArray) -> Any:
        """Runs the program; arguments, on any device, and results are those of `Program.__call__`. One thread
        at a time may run it.

        Raises:
            ValueError: other arguments than those of the capture.
            RuntimeError: a device isn't there any more, or a tensor of the state is on another one.
        """
        if overriding and (answer := overriding.dispatch(self.__call__, tensors, {})) is not NotImplemented:
            return answer
        raws = [raw_of(x) for x in tensors]
        self._check_call(raws)
        settle(self.name, self._movers)
        try:
            result = self._run(raws)
        except BaseException:
            self._transfers.abandon()
            self._state.forget_copies()
            raise
        return mapped(lambda x: from_raw(as_raw(x)) if is_raw(x) or isinstance(x, np.generic) else x, result)

    def save(self, path: object) -> NoReturn:
        """Raises NotImplementedError: the program of a file is on one device."""
        raise NotImplementedError(
            f"can't save {self.name} on {len(self.devices)} devices: save the program before `placed`, or "
            "the state_dict() of the model and of the optimizer"
        )

    freeze = save

    def _check_call(self, raws: list[RawArray]) -> None:
        for x in self.devices:
            if x.kind is GPU and x.index >= device_count():
                raise RuntimeError(f"{self.name} runs on {x}, which isn't there any more")
        self._check_inputs(raws)
        written = [self._state.array(x) for x in self._program.changed_storages() if x in self._state]
        pairs = [(x, y) for x, y in product(written, raws) if device_of(x) is device_of(y)]
        if any(starmap(np.may_share_memory, pairs)):
            raise ValueError(f"{self.name}: it writes to a tensor that shares memory with another")

    def _check_inputs(self, raws: list[RawArray]) -> None:
        alike = [fits(raw, x, device_of(raw)) for raw, x in zip(raws, self.inputs, strict=False)]
        if len(raws) != len(self.inputs) or not all(alike):
            wanted = ", ".join([x.described(strides=True) for x in self.inputs])
            raise ValueError(f"{self.name}: expected {wanted}, got {', '.join(map(described, raws))}")

    def _run(self, raws: list[RawArray]) -> Any:
        copies, homes = self._assignment.copies, self._assignment.homes
        self._transfers.begin(self.devices)
        self._state.begin(copies)
        values = Values(self._program.constants, self.devices, self._state, self._transfers)
        for x, raw in zip(self.inputs, raws, strict=True):
            values.add(x, raw, {homes[x], *copies.get(x, ())})
        for number, segment, last in self._segments:
            run, taken = segment.executable(), [values.taken(x, number) for x in segment.inputs]
            run.bind()
            for y, raw in zip(segment.outputs, run(*taken), strict=True):
                values.add(y, raw, copies.get(y, ()))
            del taken
            values.drop(last)
        self._transfers.finish()
        return mapped(lambda x: values.result(x) if isinstance(x, Value) else x, self._program.outputs)

    def _parts(self) -> Iterator[tuple[int | None, Program, list[Value]]]:
        """Yields the device of each segment, its program, and the values that no later one needs."""
        whole, later, found = self._program, {*self._program.results()}, []
        uses = whole.uses()
        for number, instructions in reversed([*self._assignment.segments()]):
            part = _part_of(whole, instructions, self._state.on(number), uses)
            written = [self._assignment.homes.get(x) for i in instructions for x in i.written]
            place = written[0] if number is None and written else number  # a step's: where its parameters lie
            target = whole.device if place is None else self.devices[place]
            found.append((number, replace(part, device=target), [x for x in part.inputs if x not in later]))
            later.update(part.inputs)
        return reversed(found)


def _part_of(
    whole: Program, instructions: list[Instruction], state: dict[Value, RawArray],
    uses: dict[Value, list[Instruction]],
) -> Program:
    """Returns the program of some instructions, with this state: it takes what others make, and gives what
    others take."""
    inside, results = {*instructions}, {*whole.results()}
    made = dict.fromkeys([y for i in instructions for y in i.outputs])
    taken = dict.fromkeys([x for i in instructions for x in i.inputs()])
    inputs = tuple([x for x in taken if x not in {**made, **state, **whole.constants}])
    outputs = tuple([y for y in made if y in results or not inside.issuperset(uses.get(y, ()))])
    constants, owners = _only(taken, whole.constants), _only(state, whole.owners)
    loose = tuple([x for x in inputs if x.dtype.kind != "O"])
    return replace(
        whole, inputs=inputs, state=state, constants=constants, instructions=instructions, outputs=outputs,
        owners=owners, position=None, loose=loose, gives_lazy=False,
    )


def _only(keys: Container, mapping: dict) -> dict:
    return {x: y for x, y in mapping.items() if x in keys}


def _check(program: Program) -> None:
    """Raises an error for what can't be on several devices."""
    if opaque := [x for x in (*program.inputs, *program.results()) if x.dtype.kind == "O"]:
        raise NotImplementedError(f"can't place {program.name}: {opaque[0].described()} is no array")
    if changed := program.changed_storages() & {*program.inputs}:
        raise ValueError(f"can't place {program.name}: it writes to its inputs, {[*changed]}")
    if gaps := [x for x in (*program.inputs, *program.state) if x.size and dense_order(x) is None]:
        raise NotImplementedError(
            f"can't place {program.name}: {gaps[0].described(strides=True)} has gaps between its elements"
        )


def placed(
    program: Program, devices: Sequence[DeviceLike] | Mapping[DeviceLike, Limit],
    memory: Limit | Mapping[DeviceLike, Limit] | None = None,
) -> Placed:
    """Returns a function that computes the same on several devices, if one has too little memory.

    The program is cut where the fewest bytes cross; copies are made while devices compute. Gradients, and
    moments of optimizers, lie with their parameter. The tensors of the state move to their devices, as by
    `model.to`. Results lie where they are made.

    Args:
        devices: names, or a limit for each, as accelerate's `max_memory`: `{0: "10GiB", "cpu": "30GiB"}`.
        memory: the limit of each device, or of some: bytes, or text as "500MB" or "1.5 GiB"; by default what
            is free on a GPU, and none on others.

    Raises:
        ValueError: it doesn't fit, the message says what is needed; or it writes to its inputs.
        NotImplementedError: an input or result is no array, or has gaps between its elements.

    >>> w, v = mytorch.ones(300, 300), mytorch.ones(300, 300)
    >>> program = mytorch.capture(lambda x: (x @ w).relu() @ v, mytorch.ones(1, 300))
    >>> program.placed(["cpu"], memory="500kB")
    Traceback (most recent call last):
    ValueError: <lambda> doesn't fit its devices, it needs 723.6 kB of 500.0 kB on cpu
    >>> program.placed({"cpu": "1MB"}).nbytes
    0
    """
    return Placed(program, devices, memory)


Program.placed = placed
