"""Guards of the tensors that a program uses without getting them as arguments: its state."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...backends.device import RawArray, device, device_of
from ...core.closure import extent
from ...core.tensor import Tensor
from ..program.instruction import Value
from ..program.program import fits
from .state_guards import Comparison


class Owner(NamedTuple):
    """A tensor of the state.

    Attributes:
        tensor: a reference to it.
        value: what stands for it in the program.
        raw: its array, by now.
        requires_grad: whether it required a gradient in the trace.
    """

    tensor: weakref.ref[Tensor]
    value: Value
    raw: RawArray
    requires_grad: bool


class TensorGuards:
    """Whether tensors of the state have their arrays, and require gradients, as in the trace.

    Args:
        owners: the tensors, by value.
        state: their arrays, by value.
        target: the device of the program.
        depends_on_grads: whether the program differs with tensors that have a `.grad`, or hooks.

    Attributes:
        hold: returns whether all is the same, but for gradients.
    """

    def __init__(
        self, owners: Mapping[Value, Tensor], state: Mapping[Value, RawArray], target: device,
        depends_on_grads: bool,
    ):
        self._owners = [
            Owner(weakref.ref(x), value, state[value], x.requires_grad) for value, x in owners.items()
        ]
        self._target, self.depends_on_grads = target, depends_on_grads

    def begin(self) -> None:
        """Takes down which tensors there are after the trace, and which of them have gradients."""
        self._owners = [x for x in self._owners if x.tensor() is not None]  # without those it made of arrays
        self._have_grads = self._grads()
        self._arrays = [x.raw for x in self._owners]
        self.hold = self._comparison()

    def _comparison(self) -> Callable[[], bool]:
        comparison = Comparison()
        arrays = comparison.name(self._arrays)
        for k, owner in enumerate(self._owners):
            comparison.terms += [
                f"(x := {comparison.name(owner.tensor)}()) is not None", f"x._data._array is {arrays}[{k}]",
                f"(x._node is not None) is {owner.requires_grad}",
            ]
        return comparison.compiled()

    def failure(self, bind: Callable[[], None]) -> str | None:
        """Returns what has changed since the trace; None if the program still holds.

        Args:
            bind: makes the program use the arrays that the tensors have now.
        """
        if not self.hold():
            for k, owner in enumerate(self._owners):
                if (change := self._change_of(k, owner, bind)) is not None:
                    return change
            self._arrays[:] = [x.raw for x in self._owners]
            if _do_overlap(self._arrays):
                self._arrays[0] = None  # the next call asks again
                return "two tensors of the state share memory"
        if self.depends_on_grads and (now := self._grads()) != self._have_grads:
            if [has for has, _ in now] == [has for has, _ in self._have_grads]:
                return "a parameter has other hooks"
            return "parameters have a .grad where they had none, or none where they had one"
        return None

    def _change_of(self, k: int, owner: Owner, bind: Callable[[], None]) -> str | None:
        """Returns what has changed about a tensor of the state; the program gets its new array."""
        x, value = owner.tensor(), owner.value
        if x is None:
            return "a tensor of the state is gone"
        now = x._data._array
        if now is not owner.raw:
            if not fits(now, value, self._target):
                old, new = f"{value.dtype}{list(value.shape)}", f"{now.dtype}{list(now.shape)}"
                return f"a tensor of the state is {new} on {device_of(now)}, was {old} on {self._target}"
            self._owners[k] = owner._replace(raw=now)
            bind()
        if x.requires_grad != owner.requires_grad:
            return f"requires_grad of a tensor of the state of shape {list(value.shape)} has changed"
        return None

    def _grads(self) -> list[tuple[bool, tuple]]:
        """Returns of each tensor whether it has no gradient, and the hooks of it."""
        tensors = [x.tensor() for x in self._owners]
        return [
            (x._grad is None, () if x._node is None or not x._node.hooks else tuple(x._node.hooks.values()))
            for x in tensors
        ]

    def hold_one_of(self, tensors: Sequence[object]) -> bool:
        """Returns whether one of these is a tensor of the state."""
        owners = [x.tensor() for x in self._owners]
        return any([x is owner for x in tensors for owner in owners])

    def copy(self) -> TensorGuards:
        """Returns the same guards for another program."""
        made = object.__new__(TensorGuards)
        made.__dict__.update(self.__dict__)
        made._owners, made._arrays = [*self._owners], [x.raw for x in self._owners]
        made.hold = made._comparison()
        return made


def _do_overlap(raws: list[RawArray]) -> bool:
    """Returns whether two arrays may share memory: a program takes its state as independent."""
    extents = sorted([extent(raw) for raw in raws if raw.size])
    return any([start < end for (_, end), (start, _) in itertools.pairwise(extents)])
