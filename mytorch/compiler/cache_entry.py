"""Versions of a compiled function: its program for one kind of arguments, and what that depends on."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from ..backends.device import RawArray, device_of, is_raw
from ..core.closure import extent
from ..core.tensor import Tensor
from ..utils.nested import leaves
from . import boundary
from .backend import Backend
from .graph_breaks.break_points import BreakPoints
from .graph_breaks.syntax import is_part
from .graph_breaks.watching import Changed, watching
from .guards.places import Place
from .guards.reachable import Reachable
from .guards.state_guards import Comparison
from .partition import Partition
from .program.instruction import Value
from .program.program import fits
from .tracing.capture import traced
from .tracing.numbers import Numbers
from .tracing.tracer import Tracer

_EFFECTS = {f"host.{name}" for name in ("set_grad", "step", "call", "norm", "draw", "kept", "random")}


class Version:
    """A program for one kind of arguments.

    Attributes:
        places: of numbers in objects that are inputs, with their kinds.
        writes: whether it writes to arguments or state.
        asks_identity: whether the function asks which tensor is the same object.
        is_watched: whether `must_run_eagerly` is asked in each call.
        flags: bools that the function changes, as `training`: the dict, the name, and what it becomes.
    """

    def __init__(
        self, function: Callable, args: tuple, kwargs: dict, raws: list, mode: str | None, backend: Backend,
        numbers: Numbers, picks: bool, watches: bool,
    ):  # fmt: skip
        self._raws, self._numbers = [*raws, *numbers.inputs.values()], numbers
        others = [x for x in leaves((args, kwargs)) if not isinstance(x, Tensor)]
        self.places = {k: type(x) for k, x in numbers.inputs.items() if isinstance(k, Place)}
        objects = [x for x in others if not is_raw(x)]
        objects += boundary.own_attributes((args, kwargs))
        self._reachable = Reachable(function, *objects, inputs=self.places)
        breaks = BreakPoints(self._reachable)
        breaks.note_arguments(function, args, kwargs)
        self.asks_identity = self._reachable.uses.asks_identity
        if numbers.inputs and self._reachable.uses.asks_types:
            raise NotImplementedError("it asks for the type of what may be a number")
        caches = [(function, function.cache_info().misses) for function in self._reachable.caches]
        watched = self._reachable.snapshot if watches else None
        try:
            with watching(breaks, watched) as frames:
                self._capture(function, args, kwargs, picks)
        finally:
            for function, misses in caches:  # what it keeps now holds nothing
                if function.cache_info().misses != misses:
                    function.cache_clear()
            self.flags = self._reachable.snapshot.take_flags()
            change = self._reachable.snapshot.undo()
            self._reachable.seen.clear()
        if change is not None:
            raise Changed(f"a program can't hold what it does to Python's objects: {change}", frames)
        self._owners = [x for x in self._owners if x[0]() is not None]  # without those it made of arrays
        self._have_grads = self._grads()
        self._snapshot = self._reachable.snapshot
        del self._raws, self._numbers, self._reachable
        self._arrays = [raw for _, _, raw, _ in self._owners]
        self._have_arrays = self._comparison()
        self.partition.optimize(mode, backend)
        self.writes = self.partition.forward.executable().writes
        self._movers = self.partition.forward.executable().movers
        self.is_watched = bool(self.writes or self.asks_identity or self._movers)

    def _capture(self, function: Callable, args: tuple, kwargs: dict, picks: bool) -> None:
        known, seen = self._reachable.tensors, self._reachable.seen
        options = {"reads_rates": self._reachable.reads_rates, "with_repeats": True, "picks": picks}
        running = traced(function, args, kwargs, known, self._answer, self._numbers, **options)
        with running as found:
            self._owners = [
                (weakref.ref(owner), value, found.tracer.state[value], owner.requires_grad)
                for value, owner in found.tracer.owners.items()
            ]
            if any([x._grad is not None for x in found.arguments if isinstance(x, Tensor)]):
                raise NotImplementedError("backward() would set the .grad of an argument")
            boundary.check_arguments(found)
            boundary.check_result(found, seen)
            found.result = boundary.with_made(found.result, seen)
            if is_part(function):
                boundary.check_views(found)
            names = {i.name for i in found.tracer.instructions}
            tracer = found.tracer
            self._reachable.forget_shared_arrays([*tracer.state.values(), *tracer.constants.values()])
            self.partition = Partition(found)
        names |= self._reachable.uses.names & {"grad", "zero_grad"}  # of None it makes no instruction
        self._depends_on_grads = not names.isdisjoint({"host.grad", "host.set_grad", "grad", "zero_grad"})

    def _answer(self, tracer: Tracer, value: Value) -> Any:
        """Returns the element that the function asks for: what the program so far computes.

        Raises:
            NotImplementedError: it is no bool or integer, or the program has done more than to compute.
        """
        if value.dtype.kind not in "biu":
            raise NotImplementedError(
                f"it asks for the element of an array of {value.dtype}, which may differ each time; "
                "return the tensor, and ask outside"
            )
        if any([i.written or i.name in _EFFECTS for i in tracer.instructions]):
            raise NotImplementedError("it asks for an element after it has written in place or drawn numbers")
        with tracer.suspended():
            answer = tracer.program(value).executable()(*self._raws).item()
        tracer.host("expect", value, answer)
        return answer

    def _comparison(self) -> Callable[[], bool]:
        """Returns whether tensors of the state have their arrays, and need gradients as in the capture."""
        comparison = Comparison()
        arrays = comparison.name(self._arrays)
        for k, (reference, _, _, requires_grad) in enumerate(self._owners):
            comparison.terms += [
                f"(x := {comparison.name(reference)}()) is not None", f"x._data._array is {arrays}[{k}]",
                f"(x._node is not None) is {requires_grad}",
            ]  # fmt: skip
        return comparison.compiled()

    def change(self) -> str | None:
        """Returns what has changed since the capture; None if the program still holds."""
        if not self._have_arrays():
            for k, (reference, value, raw, requires_grad) in enumerate(self._owners):
                if (change := self._change_of(k, reference(), value, raw, requires_grad)) is not None:
                    return change
            self._arrays[:] = [raw for _, _, raw, _ in self._owners]
            if _do_overlap(self._arrays):
                self._arrays[0] = None  # the next call asks again
                return "two tensors of the state share memory"
        if self._depends_on_grads and self._grads() != self._have_grads:
            ours, then = ([has for has, _ in found] for found in (self._grads(), self._have_grads))
            if ours == then:
                return "a parameter has other hooks"
            return "parameters have a .grad where they had none, or none where they had one"
        if self.places:
            for place, kind in self.places.items():
                if type(place.read()) is not kind:
                    return f"{place} is no {kind.__name__}"
        return self._snapshot.failure()

    def changed_numbers(self) -> set[Place]:
        """Returns the places of numbers in objects that are others than in the capture: see `Reachable`."""
        return self._snapshot.changed_numbers()

    def given(self, given: list) -> list:
        """Returns the inputs of the program: those of a call, and numbers in objects."""
        return [*given, *[place.read() for place in self.places]]

    def set_flags(self) -> None:
        """Does to bools in Python's objects what the function does."""
        for entries, name, value in self.flags:
            entries[name] = value

    def _change_of(
        self, k: int, owner: Tensor | None, value: Value, raw: RawArray, requires_grad: bool
    ) -> str | None:  # fmt: skip
        """Returns what has changed about a tensor of the state; the program gets its new array."""
        if owner is None:
            return "a tensor of the state is gone"
        now = owner._data._array
        if now is not raw:
            target = self.partition.forward.device
            if not fits(now, value, target):
                old, new = f"{value.dtype}{list(value.shape)}", f"{now.dtype}{list(now.shape)}"
                return f"a tensor of the state is {new} on {device_of(now)}, was {old} on {target}"
            self._owners[k] = weakref.ref(owner), value, now, requires_grad
            self.partition.forward.executable().bind()
        if owner.requires_grad != requires_grad:
            return f"requires_grad of a tensor of the state of shape {list(value.shape)} has changed"
        return None

    def _grads(self) -> list[tuple[bool, tuple]]:
        """Returns of each tensor of the state whether it has a gradient, and the hooks of it."""
        owners = [reference() for reference, *_ in self._owners]
        return [
            (x._grad is None, () if x._node is None or not x._node.hooks else tuple(x._node.hooks.values()))
            for x in owners
        ]

    def must_run_eagerly(self, tensors: list[Tensor], raws: list) -> bool:
        """Returns whether an argument is a tensor of the state, if that matters, the program would write
        to memory that another tensor shares (see `Executable`), or an optimizer would move what it uses."""
        if self._movers and not all([optimizer.is_settled() for optimizer in self._movers]):
            return True
        if self.asks_identity:
            owners = [reference() for reference, *_ in self._owners]
            if any([x is owner for x in tensors for owner in owners]):
                return True
        return self.writes and self.partition.forward.executable().overlap(raws)

    def __str__(self) -> str:
        programs = [p for p in (self.partition.forward, self.partition.backward) if p is not None]
        counts = [f"{p.name}: {len(p.instructions)} instructions" for p in programs]
        return ", ".join([*counts, *filter(None, [str(self.partition.graph)])])


def _do_overlap(raws: list[RawArray]) -> bool:
    """Returns whether two arrays may share memory: a program takes its state as independent."""
    extents = sorted([extent(raw) for raw in raws if raw.size])
    return any([start < end for (_, end), (start, _) in itertools.pairwise(extents)])
