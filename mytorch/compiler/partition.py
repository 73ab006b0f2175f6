"""Partition: the forward and the backward pass of a function as two programs, and the op that they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..autograd.gradients import grad
from ..backends.device import CPU, RawArray
from ..core.engine import conjugated
from ..core.grad_mode import enable_grad
from ..core.op import as_raw, connect
from ..core.tensor import Tensor, from_raw, increment_version, raw_of
from .backend import Backend, BackendFunction
from .passes.absent import without_gradients
from .program.instruction import Value
from .program.program import Program
from .results import Results
from .running.on_gpu import Graphed
from .tracing.capture import Traced


class Gradients(NamedTuple):
    """What the backward pass of a trace gets and gives.

    Attributes:
        incoming: the values of the gradients of the differentiable results.
        found: the value of the gradient of each tensor among the arguments, and then the state; or None.
    """

    incoming: list[Value]
    found: list[Value | None]


class Backward(NamedTuple):
    """A backward program as a function, and which arguments and state it returns a gradient of."""

    run: Callable
    has_gradient: list[bool]


class Partition:
    """A function as an op: a forward program, and a backward program for what needs gradients.

    Args:
        traced: the function after its run, within the context of `traced`.

    Attributes:
        forward: returns the function's tensors and what `backward` needs.
        backward: gets this, and the gradients of the differentiable tensors; returns those of arguments and
            state. None if nothing is differentiable.
        traced: the two as they were traced.
        results: what the function returned.
        graph: what is to be said of CUDA graphs, as text.
        choices: see `Tracer.choose`.

    Raises:
        NotImplementedError: a differentiable result is a view of an argument or of the state, or one
            that has a `.grad`: a leaf, or after `retain_grad()`.
    """

    def __init__(self, traced: Traced):
        self.graph: Any = ""
        self.results = Results(traced)
        roots = [self.results.tensors[k] for k in self.results.roots]
        values = tuple(map(traced.output, self.results.tensors))
        _refuse_views([values[k] for k in self.results.roots], traced)
        self._owners = [weakref.ref(owner) for owner in traced.tracer.owners.values()] if roots else []
        end = len(traced.tracer.instructions)
        self._gradients = _gradients(traced, roots)
        whole = traced.program(None)
        end += len(traced.tracer.numbers.head)
        outputs = *values, *[x.value for x in self.results.numbers]
        self.traced = _halves(whole, end, outputs, self._gradients, has_backward=bool(roots))
        self.forward, self.backward = self.traced
        self.results.forget_trace()
        self.choices = traced.tracer.choices

    @property
    def incoming(self) -> dict[Value, Value]:
        """The values of the gradients that the backward pass gets, with those of the results."""
        values = [self.traced[0].outputs[0][k] for k in self.results.roots]
        return dict(zip(self._gradients.incoming, values, strict=True))

    def resized(self, forward: Program, backward: Program | None, values: dict[Value, Value]) -> Partition:
        """Returns the partition of the same function for arguments of other sizes.

        Args:
            forward, backward: the programs as they would have been traced.
            values: of these programs, by those of the programs of this one.
        """
        made = object.__new__(Partition)
        made.__dict__.update(self.__dict__)
        incoming, found = self._gradients
        found = [x if x is None else values[x] for x in found]
        made._gradients = Gradients([values[x] for x in incoming], found)
        made.traced = made.forward, made.backward = forward, backward
        return made

    def optimize(self, mode: str | None = None, backend: Backend = "inductor") -> None:
        """Runs all passes over both programs; see `Program.optimized`.

        With other backends than "inductor" the forward program stays as it was traced. One that is a function
        doesn't get the backward program, which may take what only kernels understand.

        With "reduce-overhead" a forward program on a GPU without a backward pass, which would need what the
        next call overwrites, becomes a CUDA graph.
        """
        is_default = backend == "inductor"
        self._optimized: Callable[[Program], Program] = lambda program: program
        self._backwards: dict[tuple[int, ...], Backward | None] = {}
        if is_default:
            self.forward = self.forward.optimized(mode)
        if is_default and mode == "reduce-overhead" and self.forward.device is not CPU:
            self.graph = "no CUDA graph: its backward pass comes later"
            if self.backward is None:
                self.graph = self.forward._run = Graphed(self.forward)
        if self.backward is not None and (is_default or callable(backend)):
            self._optimized = lambda program: program.optimized(mode)
            self.backward = self._optimized(self.backward)
        changed = self.forward.changed_storages()
        self._written = [k for k, x in enumerate(self.forward.inputs) if x in changed]
        self._run = self.forward.executable().__call__  # bound: a tenth of a microsecond less
        if callable(backend):
            self._run = BackendFunction(self.forward, backend)

    def __call__(self, tensors: Sequence[object], raws: Sequence[RawArray]) -> Any:
        """Runs the forward program on tensors, and their arrays, and records it."""
        outputs, saved = self._run(*raws)
        results = self.results
        for k in self._written:  # before it is recorded: what is saved is what was written
            if isinstance(tensors[k], Tensor):
                increment_version(tensors[k])
        if results.is_tensor:
            (y,) = outputs
            if type(y) is not np.ndarray:
                y = np.asarray(y) if isinstance(y, np.generic) else as_raw(y)
            result = from_raw(y)
            if results.freed:
                results.give_freed_nodes([result])
            return result
        made = results.made(outputs)
        if results.roots:
            with enable_grad():  # the function may have done so itself
                self._record(tensors, [made[k] for k in results.roots], saved)
                results.make_views(made)
        results.give_freed_nodes(made)
        return results.nested(made, tensors)

    def _record(self, tensors: Sequence[object], roots: list[Tensor], saved: tuple) -> None:
        owners = [reference() for reference in self._owners]
        args = [*[x for x in tensors if isinstance(x, Tensor)], *owners]
        has_gradient = [x is not None for x in self._gradients.found]
        for k, x in enumerate(args):
            if x is not None and not has_gradient[k] and x.requires_grad:
                args[k] = x.detach()  # the backward pass doesn't go there
        kinds = [(y.shape, y.dtype) for y in roots]  # not the arrays: those may be written to
        whole = Backward(self.backward.executable(), has_gradient)

        def vjp(grads: list) -> tuple:
            backward, given = self._backward_of(grads, kinds, whole)
            if kinds[0][1].kind == "c":  # the engine conjugates for ops; the program has done so itself
                found = iter([*map(conjugated, backward.run(*saved, *map(conjugated, given)))])
            else:
                found = iter(backward.run(*saved, *given))
            return tuple([next(found) if is_given else None for is_given in backward.has_gradient])

        connect(_op, args, {}, roots, vjp, several=True)

    def _backward_of(self, grads: list, kinds: list[tuple], whole: Backward) -> tuple[Backward, list]:
        """Returns the backward program for these gradients, some of which may be None, and what it gets."""
        absent = tuple([k for k, g in enumerate(grads) if g is None])
        if absent and (part := self._backward_without(absent)) is not None:
            return part, [g for g in grads if g is not None]
        like, pairs = next(g for g in grads if g is not None), zip(grads, kinds, strict=True)
        return whole, [np.zeros(*kind, like=like) if g is None else g for g, kind in pairs]

    def _backward_without(self, absent: tuple[int, ...]) -> Backward | None:
        """Returns the backward pass for results of which some, at these positions, have no gradient: zeros of
        the logits that nothing but a loss uses would take longer than some layers. None if it needs them."""
        if absent not in self._backwards:
            incoming, all_found = self._gradients
            program = without_gradients(self.traced[1], [incoming[k] for k in absent])
            self._backwards[absent] = None
            if program is not None:
                grads = iter(program.outputs)
                found = [x is not None and next(grads) is not None for x in all_found]
                program.outputs = tuple([g for g in program.outputs if g is not None])
                self._backwards[absent] = Backward(self._optimized(program).executable(), found)
        return self._backwards[absent]


def _op(*args: object) -> Any:
    """What higher derivatives find in place of an op.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("a compiled function has no second derivative; call the function itself")


_op.__name__, _op.is_kernel, _op.reference = "compiled", True, _op


def _refuse_views(values: list[Value], traced: Traced) -> None:
    given = {traced.output(x).storage for x in traced.arguments} | {*traced.tracer.state}
    if any([value.storage in given for value in values]):
        raise NotImplementedError("a compiled function can't return a differentiable view of what it got")


def _halves(
    whole: Program, end: int, outputs: tuple[Value, ...], gradients: Gradients, has_backward: bool
) -> tuple[Program, Program | None]:
    """Returns a program in two: the instructions before this one, which return these outputs and what the
    others need; and the others, which return the gradients."""
    later = whole.instructions[end:]
    grads = tuple([x for x in gradients.found if x is not None])
    made = {y for i in later for y in i.outputs} | {*gradients.incoming}
    needed = [*[x for i in later for x in i.inputs()], *grads]
    saved = tuple(dict.fromkeys([x for x in needed if x not in made and x not in whole.constants]))
    forward = replace(whole, instructions=whole.instructions[:end], outputs=(outputs, saved))
    if not has_backward:
        return forward, None
    backward = Program(
        (*saved, *gradients.incoming), {}, whole.constants, later, grads, f"{whole.name} backward",
        gives_lazy=True, device=whole.device, loose=tuple(gradients.incoming),
    )
    return forward, backward


@contextmanager
def _without_hooks(tensors: list[Tensor]) -> Iterator[None]:
    hooks = [(x.node, x.node.hooks) for x in tensors]
    for node, _ in hooks:
        node.hooks = None
    try:
        yield
    finally:
        for node, found in hooks:
            node.hooks = found


def _gradients(traced: Traced, roots: list[Tensor]) -> Gradients:
    """Notes the backward pass of these results."""
    tracer = traced.tracer
    given = [*[x for x in traced.arguments if isinstance(x, Tensor)], *tracer.owners.values()]
    if not roots:
        return Gradients([], [None] * len(given))
    incoming = [tracer.fresh(raw_of(y)) for y in roots]
    with _without_hooks([x for x in tracer.owners.values() if x.requires_grad]):  # the engine calls them
        wanted = [x for x in given if x.requires_grad]
        grads = iter(grad(roots, wanted, [*map(from_raw, incoming)], allow_unused=True))
    found = [next(grads) if x.requires_grad else None for x in given]
    if all([g is None for g in found]):
        raise NotImplementedError("a compiled function can't return what depends on a leaf that it makes")
    copied = {i.outputs[0]: i.args[0] for i in tracer.instructions if i.name == ".copy"}  # the engine copies
    values = [None if g is None else tracer.value(raw_of(g)) for g in found]  # what isn't its own, as always
    return Gradients([*map(tracer.value, incoming)], [copied.get(value, value) for value in values])
