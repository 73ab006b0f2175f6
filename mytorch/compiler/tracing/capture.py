"""Captures programs: runs a function on arrays that hold nothing and note what is done with them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...backends.device import CPU, META, RawArray, device, device_of, get_default_device, is_raw, thread
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.layout import layout
from ...core.array import Array
from ...core.grad_mode import _state
from ...core.tensor import Tensor, raw_of
from ...nn.functional.variant import choosing, variant
from ...utils.nested import leaves, mapped
from ..guards.modes import same_modes
from ..guards.reachable import Reachable
from ..program.instruction import Value
from ..program.program import Program
from .numbers import Numbers, with_numbers
from .sizes import Sizes
from .symbolic_tracer import SymbolicTracer
from .tracer import Tracer


def capture(function: Callable, *examples: object, **named: object) -> Program:
    """Returns what a function computes of arguments like the examples, as a program. Nothing is computed.

    All that happens is part of it: the forward pass, the backward pass, what is written in place, steps of
    optimizers. Composites are taken apart, except those with kernels that do more than loops can (see
    `kernels.KERNELS`); with `F.use_fused(False)` these, too.

    Args:
        function: of tensors, numbers and nested structures of these. Numbers are constants of the program;
            tensors that are no arguments, as parameters, are its state.
        examples, named: arguments; of tensors only shape, strides, dtype and `requires_grad` matter.

    Raises:
        NotImplementedError: the function asks for an element, as `.item()` or `if x > 0` do, or does what
            programs don't hold; tensors on several devices.

    >>> print(mytorch.capture(lambda x, y: (x * y).sum(-1), mytorch.ones(2, 3), mytorch.ones(3)))
    <lambda>(%0: float32[2, 3], %1: float32[3])
      %2: float32[2, 3] = multiply(%0, %1)
      %3: float32[2] = sum(%2, axis=(1,), keepdims=False, dtype=None)
      return %3
    """
    with traced(function, examples, named, [*Reachable(function).tensors]) as found:
        return found.program(mapped(found.output, found.result))


@contextmanager
def traced(
    function: Callable, args: tuple, kwargs: dict, tensors: Collection[Tensor],
    answer: Callable[[Tracer, Value], Any] | None = None, numbers: Numbers | None = None,
    reads_rates: bool = False, with_repeats: bool = False, picks: bool = True, sizes: Sizes | None = None,
) -> Iterator[Traced]:
    """Context in which a function has run on tracing arrays, and more can be noted.

    Args:
        tensors: state that is known.
        answer, numbers, reads_rates, picks, sizes: see `Tracer`.
        with_repeats: an argument that is the same tensor as another one will always be so.
    """
    for x in (*leaves((args, kwargs)), *tensors):
        if isinstance(x, Tensor):
            x.node  # noqa: B018 - that of a view whose base was written in place is made now, of its arrays
    given = [raw_of(x) for x in leaves((args, kwargs)) if isinstance(x, _ARRAYS) or is_raw(x)]
    target = _device(given) or _device(map(raw_of, tensors)) or _default_device()
    auto, fused = variant()
    allowed = choosing(auto, None if fused else fused)  # nothing can be demanded of arrays without elements
    with tracing(target, answer, numbers, reads_rates, picks, sizes) as tracer, META, allowed:
        tracer.hold(tensors)
        arguments: list[RawArray] = []
        known: dict[int, Any] | None = {} if with_repeats else None
        args, kwargs = mapped(lambda x: _as_argument(x, tracer, arguments, known), (args, kwargs))
        given = args, kwargs = with_numbers((args, kwargs), tracer.numbers.begin(tracer))
        before = mapped(lambda x: x, given)
        nodes = [getattr(x, "_node", None) for x in arguments]
        datas = [getattr(x, "_data", None) for x in arguments]
        attributes = [*map(attributes_of, arguments)]
        with same_modes():
            result = function(*args, **kwargs)
        if tracer.graph_break is not None:  # the function has caught it
            raise tracer.graph_break
        tracer.finish()
        tracer.check_results(leaves(result))
        yield Traced(function, tracer, arguments, result, given, before, nodes, datas, attributes)


@contextmanager
def tracing(
    device: device, answer: Callable[[Tracer, Value], Any] | None, numbers: Numbers | None = None,
    reads_rates: bool = False, picks: bool = True, sizes: Sizes | None = None,
) -> Iterator[Tracer]:
    """Context in which this thread's calls are noted; its value is the tracer, see there."""
    if thread.tracer is not None:
        raise RuntimeError("a program is being captured already")
    if thread.kinds:
        raise RuntimeError(f"a program can't be captured while {thread.kinds[-1].name} is in force")
    if device.base is not device:
        raise NotImplementedError(f"a program can't hold arrays of {device.kind.name}")
    given = device, answer, numbers
    tracer = Tracer(*given) if sizes is None else SymbolicTracer(sizes, *given)
    tracer.reads_rates, tracer.picks = reads_rates, picks
    thread.tracer, _state.stream = tracer, tracer.origins
    try:
        with tracer, nullcontext() if sizes is None else sizes.of(tracer):
            yield tracer
    finally:
        thread.tracer = None
        del _state.stream  # that of all threads is seen again
        tracer.numbers.finish()
        tracer.restore()


_ARRAYS = (Tensor, Array)


def _device(raws: Iterable[RawArray]) -> device | None:
    """Returns where the first of these arrays lies that has elements."""
    return next((found for found in map(device_of, raws) if found is not META), None)


def _default_device() -> device:
    found = get_default_device()
    return CPU if found is META else found


def _as_argument(x: object, tracer: Tracer, arguments: list[RawArray], known: dict[int, Any] | None) -> Any:
    """Returns what stands for an argument: with `known`, the same for the same tensor, by its id."""
    if not isinstance(x, _ARRAYS) and not is_raw(x):
        return x
    raw = raw_of(x)
    if not isinstance(raw, MetaArray):
        tracer.stand_in(device_of(raw))
    made = new_of(layout(raw.shape, raw.strides, raw.dtype))
    tracer.inputs.append(tracer.new(made))
    found = _tensor_as(x, made) if isinstance(x, Tensor) else Array(made)
    arguments.append(found)
    return found if known is None else known.setdefault(id(x), found)


def attributes_of(x: object) -> dict[str, object]:
    """Returns the attributes of a tensor or a container which its class has added to a plain one's."""
    found = {name: getattr(x, name) for name in slots_of(type(x)) if hasattr(x, name)}
    return found | getattr(x, "__dict__", {})


@functools.cache
def slots_of(kind: type) -> tuple[str, ...]:
    """Returns the names of the attributes for which a class, but not Tensor, has slots."""
    found = [(name, slot) for base in kind.__mro__ if base is not Tensor for name, slot in vars(base).items()]
    return tuple([name for name, slot in found if isinstance(slot, types.MemberDescriptorType)])


def _tensor_as(x: Tensor, raw: RawArray) -> Tensor:
    """Returns a tensor of the class of another, with its attributes."""
    found = object.__new__(type(x))
    found._set(Array(raw))
    for name, attribute in attributes_of(x).items():
        setattr(found, name, attribute)
    found.requires_grad = x.requires_grad
    return found


@dataclass
class Traced:
    """A function that has run on tracing arrays.

    Attributes:
        arguments: the tensors among the arguments, as the function got them, in order.
        result: what it returned.
        given: the arguments with all that they hold, as the function has left them.
        before: the same as the function got them.
        nodes: the nodes of `arguments` in the graph before it ran.
        datas: their arrays before it ran.
        attributes: those of parameters and tensors of a user's class before it ran.
    """

    function: Callable
    tracer: Tracer
    arguments: list[RawArray]
    result: Any
    given: tuple
    before: tuple
    nodes: list[Any]
    datas: list[Any]
    attributes: list[dict]

    def output(self, x: object) -> Any:
        """Returns the value of what the function returned, if it is an array, else itself."""
        if not isinstance(x, _ARRAYS) and not is_raw(x):
            return x
        raw = raw_of(x)
        return self.tracer.value(self.tracer.held(raw, x if isinstance(x, Tensor) else None))

    def program(self, outputs: object) -> Program:
        """Returns the program of all instructions."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return self.tracer.program(outputs, name)
