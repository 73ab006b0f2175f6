"""Builds cache entries: traces a function, and takes down what its program depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..backends.device import is_raw
from ..core.tensor import Tensor
from ..utils.nested import leaves
from . import boundary
from .backend import Backend
from .cache_entry import CacheEntry
from .graph_breaks.break_points import BreakPoints
from .graph_breaks.syntax import is_part
from .graph_breaks.watching import Changed, watching
from .guards.places import Place
from .guards.reachable import Reachable
from .guards.tensors import TensorGuards
from .partition import Partition
from .program.instruction import Value
from .tracing.capture import Traced, traced
from .tracing.numbers import Numbers
from .tracing.sizes import Sizes
from .tracing.tracer import Tracer

_OF_GRADS = {"grad", "zero_grad"}  # of None they make no instruction
_EFFECTS = {f"host.{name}" for name in ("set_grad", "step", "call", "norm", "draw", "kept", "random")}


class Options(NamedTuple):
    """How a function is traced and compiled.

    Attributes:
        mode, backend: see `compile`.
        picks: see `Tracer`.
        finds_changes: whether it is watched which line changes Python's objects.
    """

    mode: str | None
    backend: Backend
    picks: bool
    finds_changes: bool


def build(
    function: Callable, args: tuple, kwargs: dict, raws: list, numbers: Numbers, options: Options,
    sizes: Sizes | None = None,
) -> CacheEntry:
    """Returns a cache entry for a function with these arguments, and with these numbers as inputs.

    Args:
        raws: the arrays among the arguments.
        sizes: notes what Python computes of sizes; None if they are constants.

    Raises:
        NotImplementedError: the function does what a program can't hold; or whatever it raises where its
            arrays have no elements.
    """
    places = {k: type(x) for k, x in numbers.inputs.items() if isinstance(k, Place)}
    found, breaks = _reachable(function, args, kwargs, places)
    if numbers.inputs and found.uses.asks_types:
        raise NotImplementedError("it asks for the type of what may be a number")
    snapshot, caches = found.snapshot, _Caches(found.caches)
    try:
        with watching(breaks, snapshot if options.finds_changes else None) as frames:
            answer = _Answers([*raws, *numbers.inputs.values()])
            reads = {"reads_rates": found.reads_rates, "with_repeats": True, "picks": options.picks}
            reads["sizes"] = None if found.uses.asks_types else sizes
            with traced(function, args, kwargs, found.tensors, answer, numbers, **reads) as trace:
                partition, tensors = _taken_down(trace, found)
    finally:
        caches.clear()
        flags = snapshot.take_flags()
        change = snapshot.undo()
        found.seen.clear()
    if change is not None:
        raise Changed(f"a program can't hold what it does to Python's objects: {change}", frames)
    del trace, answer
    tensors.begin()
    partition.optimize(options.mode, options.backend)
    return CacheEntry(function, partition, tensors, snapshot, places, flags, found.uses.asks_identity)


def _reachable(
    function: Callable, args: tuple, kwargs: dict, places: dict[Place, type]
) -> tuple[Reachable, BreakPoints]:
    """Returns what the function can be seen to use, itself and by its arguments, and where its trace ends."""
    others = [x for x in leaves((args, kwargs)) if not isinstance(x, Tensor) and not is_raw(x)]
    own = boundary.own_attributes((args, kwargs))
    found = Reachable(function, *others, *own, inputs=places)
    breaks = BreakPoints(found)
    breaks.note_arguments(function, args, kwargs)
    return found, breaks


def _taken_down(trace: Traced, found: Reachable) -> tuple[Partition, TensorGuards]:
    """Returns what a function computes, and the guards of its state.

    Raises:
        NotImplementedError: it gives, or has changed, what a program can't give or change.
    """
    tracer, seen = trace.tracer, found.seen
    if any([x._grad is not None for x in trace.arguments if isinstance(x, Tensor)]):
        raise NotImplementedError("backward() would set the .grad of an argument")
    boundary.check_arguments(trace)
    boundary.check_result(trace, seen)
    trace.result = boundary.with_made(trace.result, seen)
    if is_part(trace.function):
        boundary.check_views(trace)
    names = {i.name for i in tracer.instructions} | (found.uses.names & _OF_GRADS)
    depends_on_grads = not names.isdisjoint({"host.grad", "host.set_grad", *_OF_GRADS})
    tensors = TensorGuards(tracer.owners, tracer.state, tracer.device, depends_on_grads)
    found.forget_shared_arrays([*tracer.state.values(), *tracer.constants.values()])
    return Partition(trace), tensors


class _Caches:
    """Functions that keep their results, some of which hold nothing after a trace."""

    def __init__(self, functions: list[Any]):
        self._misses = [(function, function.cache_info().misses) for function in functions]

    def clear(self) -> None:
        """Clears those that have kept something since."""
        for function, misses in self._misses:
            if function.cache_info().misses != misses:
                function.cache_clear()


class _Answers:
    """The elements that a function asks for in its trace: what the program so far computes.

    Args:
        given: the arrays and numbers that the function gets.
    """

    def __init__(self, given: list):
        self._given = given

    def __call__(self, tracer: Tracer, value: Value) -> Any:
        """Returns an element, which each run of the program expects to be the same.

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
            answer = tracer.program(value).executable()(*self._given).item()
        tracer.host("expect", value, answer)
        return answer
