"""The arrays of a program on several devices: its state, and the values of a run."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from ...backends.device import RawArray, device, device_of, move
from ...core.array import wrap
from ...core.op import as_raw
from ...core.tensor import Tensor, raw_of, version_of
from ...nn.parameter import replace_data
from ..passes.strides import dense_order, inverse_of
from ..program.instruction import Value
from ..program.program import Program
from .transfers import Transfers


class State:
    """The arrays of a program's state on their devices, and copies of these on others."""

    def __init__(
        self, program: Program, homes: dict[Value, int | None], devices: list[device], transfers: Transfers
    ):
        self._homes, self._devices, self._transfers, self._owners = homes, devices, transfers, program.owners
        self._arrays = {x: self._moved(x, raw, devices[homes[x]]) for x, raw in program.state.items()}
        self._copies: dict[tuple[Value, int], tuple[RawArray, int, Future]] = {}

    def __contains__(self, x: Value) -> bool:
        return x in self._arrays

    def on(self, number: int | None) -> dict[Value, RawArray]:
        """Returns what lies on a device."""
        return {x: raw for x, raw in self._arrays.items() if number is not None and self._homes[x] == number}

    def array(self, x: Value) -> RawArray:
        """Returns an array as it is now."""
        owner = self._owner(x)
        return self._arrays[x] if owner is None else raw_of(owner)

    def begin(self, copies: dict[Value, set[int]]) -> None:
        """Begins the copies that a run takes."""
        for x in self._arrays:
            for number in copies.get(x, ()):
                self.copy(x, number)

    def copy(self, x: Value, number: int) -> Future:
        """Returns a copy for another device; the last one, unless the tensor was written to."""
        raw, owner, known = self.array(x), self._owner(x), self._copies.get((x, number))
        version = 0 if owner is None else version_of(owner)
        if known is None or known[0] is not raw or known[1] != version:
            if known is not None:
                self._transfers.hold(known[0], known[2])
            known = raw, version, self._transfers.send(raw, self._devices[number])
            self._copies[x, number] = known
        return known[2]

    def forget_copies(self) -> None:
        self._copies.clear()

    def _owner(self, x: Value) -> Tensor | None:
        return self._owners[x]() if x in self._owners else None

    def _moved(self, x: Value, raw: RawArray, target: device) -> RawArray:
        """Returns an array on a device, to which its tensor moves with its gradient."""
        order, owner = dense_order(x) or tuple(range(x.ndim)), self._owner(x)

        def moved(raw: RawArray) -> RawArray:
            return move(raw.transpose(order), target).transpose(inverse_of(order))

        if owner is None:
            return moved(raw)
        if device_of(raw_of(owner)) is not target:
            grad = owner._grad
            replace_data(owner, wrap(moved(raw_of(owner))))
            owner._grad = None if grad is None else wrap(moved(grad._array))
        return raw_of(owner)


class Values:
    """The values of a run, where they were made and where they arrive."""

    def __init__(
        self, constants: dict[Value, RawArray], devices: list[device], state: State, transfers: Transfers
    ):
        self._devices, self._state, self._transfers = devices, state, transfers
        self._known = {**constants}
        self._arriving: dict[tuple[Value, int | None], Future] = {}

    def add(self, x: Value, raw: RawArray, numbers: Iterable[int]) -> None:
        """Adds a value, and begins to send it to devices."""
        self._known[x] = raw
        for k in [k for k in numbers if device_of(as_raw(raw)) is not self._devices[k]]:
            self._arriving[x, k] = self._transfers.send(raw, self._devices[k])

    def taken(self, x: Value, number: int | None) -> RawArray:
        """Returns a value on a device, once it has arrived."""
        is_copy = number is not None and x in self._state
        future = self._state.copy(x, number) if is_copy else self._arriving.get((x, number))
        return self.result(x) if future is None else self._transfers.received(future)

    def result(self, x: Value) -> RawArray:
        """Returns a value where it was made."""
        return self._state.array(x) if x in self._state else self._known[x]

    def drop(self, values: Iterable[Value]) -> None:
        for x in values:
            self._known.pop(x, None)
