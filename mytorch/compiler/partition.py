"""Partition: the forward and the backward pass of a function as two programs, and the op that they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..autograd.gradients import grad
from ..backends.device import CPU, RawArray, device
from ..core.engine import conjugated
from ..core.grad_mode import enable_grad
from ..core.graph import Node, View
from ..core.op import as_raw, connect
from ..core.tensor import Tensor, from_raw, increment_version, raw_of, replay_views
from ..utils.nested import Made, leaves, mapped
from .backend import Backend, BackendFunction
from .passes.absent import without_gradients
from .program.instruction import Value
from .program.program import Program
from .running.on_gpu import Graphed
from .tracing.capture import Traced
from .tracing.number import Number

Backward = tuple[Callable, list[bool]]  # and which arguments and state it returns a gradient of


@dataclass
class Output:
    """A tensor that a function returns.

    Attributes:
        position: among the outputs of the forward program, numbers from -1 downwards; of an argument, which
            is returned as it is, among the tensors that the function gets.
        is_argument: whether it is an argument.
    """

    position: int
    is_argument: bool = False


class Partition:
    """A function as an op: a forward program, and a backward program for what needs gradients.

    Args:
        traced: the function after its run, within the context of `traced`.

    Attributes:
        forward: returns the function's tensors and what `backward` needs.
        backward: gets this, and the gradients of the differentiable tensors; returns those of arguments and
            state. None if nothing is differentiable.
        structure: what the function returned, with an Output for each tensor.
        graph: what is to be said of CUDA graphs, as text.

    Raises:
        NotImplementedError: a differentiable result is a view of an argument or of the state, or one
            that has a `.grad`: a leaf, or after `retain_grad()`.
    """

    def __init__(self, traced: Traced):
        results: list[Tensor] = []
        numbers: list[Number] = []
        self.graph: Any = ""
        self.structure = mapped(lambda x: _output(x, traced.arguments, results, numbers), traced.result)
        self._count = len(results)
        freed = _freed([x.node for x in results if x.node is not None])
        self._roots = [k for k, x in enumerate(results) if x.node is not None and x.node not in freed]
        _refuse_grads([results[k] for k in self._roots])
        target = traced.tracer.device
        self._freed = [(k, _without_vjp(x.node, target)) for k, x in enumerate(results) if x.node in freed]
        self._views = _views([(k, results[k]) for k in self._roots])
        self._roots = [k for k in self._roots if k not in self._views]
        self._several = [k for k in self._roots if (view := results[k]._view) is not None and view.multiple]
        roots = [results[k] for k in self._roots]
        values = tuple(map(traced.output, results))
        _refuse_views([values[k] for k in self._roots], traced)
        self._owners = [weakref.ref(owner) for owner in traced.tracer.owners.values()] if roots else []
        last = len(traced.tracer.instructions)
        incoming, found = _backward(traced, roots)
        whole = traced.program(None)
        last += len(traced.tracer.numbers.head)
        later = whole.instructions[last:]
        made = {y for i in later for y in i.outputs} | {*incoming}
        needed = [x for i in later for x in i.inputs()] + [x for x in found if x is not None]
        saved = tuple(dict.fromkeys([x for x in needed if x not in made and x not in whole.constants]))
        self._has_gradient = [x is not None for x in found]
        self._without = [k for k, x in enumerate(found) if x is None]
        given = *values, *[x.value for x in numbers]
        self.forward = replace(whole, instructions=whole.instructions[:last], outputs=(given, saved))
        self.backward = None
        is_output = type(self.structure) is Output and not self.structure.is_argument
        self._is_single = is_output and not roots and not numbers
        if roots:
            grads = tuple([x for x in found if x is not None])
            self.backward = Program(
                (*saved, *incoming), {}, whole.constants, later, grads, f"{whole.name} backward",
                gives_lazy=True, device=whole.device, loose=tuple(incoming),
            )  # fmt: skip
            self._captured, self._incoming = self.backward, incoming
        self._optimize: Callable[[Program], Program] = lambda program: program
        self._backwards: dict[tuple[int, ...], Backward | None] = {}

    def optimize(self, mode: str | None = None, backend: Backend = "inductor") -> None:
        """Runs all passes over both programs; see `Program.optimized`.

        With other backends than "inductor" the forward program stays as it was captured. One that is a
        function doesn't get the backward program, which may take what only kernels understand.

        With "reduce-overhead" a forward program on a GPU without a backward pass, which would need what the
        next call overwrites, becomes a CUDA graph.
        """
        is_default = backend == "inductor"
        if is_default:
            self.forward = self.forward.optimized(mode)
        if is_default and mode == "reduce-overhead" and self.forward.device is not CPU:
            self.graph = "no CUDA graph: its backward pass comes later"
            if self.backward is None:
                self.graph = self.forward._run = Graphed(self.forward)
        if self.backward is not None and (is_default or callable(backend)):
            self._optimize = lambda program: program.optimized(mode)
            self.backward = self._optimize(self.backward)
        changed = self.forward.changed_storages()
        self._written = [k for k, x in enumerate(self.forward.inputs) if x in changed]
        self._run = self.forward.executable().__call__  # bound: a tenth of a microsecond less
        if callable(backend):
            self._run = BackendFunction(self.forward, backend)

    def __call__(self, tensors: Sequence[object], raws: Sequence[RawArray]) -> Any:
        """Runs the forward program on tensors, and their arrays, and records it."""
        results, saved = self._run(*raws)
        for k in self._written:  # before it is recorded: what is saved is what was written
            if isinstance(tensors[k], Tensor):
                increment_version(tensors[k])
        if self._is_single:
            (y,) = results
            result = from_raw(y if type(y) is np.ndarray else as_raw(y))
            if self._freed:
                _give_node(result, self._freed[0][1])
        else:
            made = [from_raw(as_raw(y)) for y in results[: self._count]]
            if self._roots:
                with enable_grad():  # it may have done so itself
                    self._record(tensors, [made[k] for k in self._roots], saved)
                    for k in self._several:
                        made[k]._view = View(made[k].detach(), (), multiple=True)
                    for k, (base, replay) in self._views.items():
                        made[k] = replay_views(replay, made[base])
            for k, arguments in self._freed:
                _give_node(made[k], arguments)
            made += results[self._count :]
            result = mapped(lambda x: _returned(x, made, tensors), self.structure)
        return result

    def _record(self, tensors: Sequence[object], roots: list[Tensor], saved: tuple) -> None:
        owners = [reference() for reference in self._owners]
        args = [*[x for x in tensors if isinstance(x, Tensor)], *owners]
        for k in self._without:
            if args[k].requires_grad:
                args[k] = args[k].detach()  # the backward pass doesn't go there
        kinds = [(y.shape, y.dtype) for y in roots]  # not the arrays: those may be written to
        whole = self.backward.executable(), self._has_gradient

        def vjp(grads: list) -> tuple:
            absent = tuple([k for k, g in enumerate(grads) if g is None])
            if absent and (part := self._backward_without(absent)) is not None:
                (backward, has_gradient), given = part, [g for g in grads if g is not None]
            else:
                (backward, has_gradient), like = whole, next(g for g in grads if g is not None)
                given = [
                    np.zeros(*kind, like=like) if g is None else g
                    for g, kind in zip(grads, kinds, strict=True)
                ]
            if kinds[0][1].kind == "c":  # the engine conjugates for ops; the program has done so itself
                found = iter([*map(conjugated, backward(*saved, *map(conjugated, given)))])
            else:
                found = iter(backward(*saved, *given))
            return tuple([next(found) if is_given else None for is_given in has_gradient])

        connect(_op, args, {}, roots, vjp, several=True)

    def _backward_without(self, absent: tuple[int, ...]) -> Backward | None:
        """Returns the backward pass for results of which some, at these positions, have no gradient: zeros of
        the logits that nothing but a loss uses would take longer than some layers. None if it needs them."""
        if absent not in self._backwards:
            program = without_gradients(self._captured, [self._incoming[k] for k in absent])
            self._backwards[absent] = None
            if program is not None:
                grads = iter(program.outputs)
                found = [is_given and next(grads) is not None for is_given in self._has_gradient]
                program.outputs = tuple([g for g in program.outputs if g is not None])
                self._backwards[absent] = self._optimize(program).executable(), found
        return self._backwards[absent]


def _op(*args: object) -> Any:
    """What higher derivatives find in place of an op.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("a compiled function has no second derivative; call the function itself")


_op.__name__, _op.is_kernel, _op.reference = "compiled", True, _op


def _output(x: object, arguments: list[object], results: list[Tensor], numbers: list[Number]) -> Any:
    """Returns the Output for a tensor or a number, which is added to the results unless it is an argument."""
    if type(x) is Made:
        inner = mapped(lambda y: _output(y, arguments, results, numbers), x.fields)
        return Made(x.kind, inner)
    if type(x) is Number:
        numbers.insert(0, x)
        return Output(-len(numbers))
    if isinstance(x, np.ndarray) or hasattr(x, "_array"):
        raise NotImplementedError("a compiled function returns tensors, not Arrays")
    if not isinstance(x, Tensor):
        return x
    for k, argument in enumerate(arguments):
        if argument is x:
            return Output(k, is_argument=True)
    for k, result in enumerate(results):
        if result is x:
            return Output(k)
    results.append(x)
    return Output(len(results) - 1)


def _returned(x: object, made: list[Tensor], tensors: Sequence[Any]) -> object:
    if type(x) is Made:
        return x.mapped(lambda y: _returned(y, made, tensors))
    if not isinstance(x, Output):
        return x
    return tensors[x.position] if x.is_argument else made[x.position]


def _freed(roots: list[Node]) -> set[Node]:
    """Returns the nodes that can't be differentiated, as a backward pass has freed them or what they lead to:
    of `a + b`, after the backward passes of `a` and of `b`, or the last state of a recurrent network."""
    found: set[Node] = set()
    entered: set[Node] = set()
    stack = [*roots]
    while stack:
        node = stack[-1]
        if node not in entered:
            entered.add(node)
            stack += [x for x in node.parents if x is not None and x not in entered]
        else:  # all below it is known
            stack.pop()
            if node.parents and (node.vjp is None or not found.isdisjoint(node.parents)):
                found.add(node)
    return found


def _without_vjp(node: Node, target: device) -> tuple:
    """Returns the arguments of a Node without a vjp: another backward pass raises an error."""
    return node.name, (None,), None, node.shape, node.dtype, target


def _give_node(x: Tensor, arguments: tuple) -> None:
    x._node = Node(*arguments)
    x._node.tensor = weakref.ref(x)


def _views(roots: list[tuple[int, Tensor]]) -> dict[int, tuple[int, tuple]]:
    """Returns which differentiable results are views of another one, of which, and the ops that lead there.

    They are made of it again, so that autograd knows what is written to either of them. The several views
    that one op returns, as of `chunk`, can't be written to: each is marked as one.
    """
    positions = {id(x): k for k, x in roots}
    found = {}
    for k, x in roots:
        view = x._view
        if view is None or view.multiple or id(view.base) not in positions:
            continue
        if not any([isinstance(arg, (Tensor, Number)) for arg in leaves(view.replay)]):
            found[k] = positions[id(view.base)], view.replay
    return found


def _refuse_grads(roots: list[Tensor]) -> None:
    """Raises an error if a result gets a `.grad`: the backward program has gradients of what it got alone."""
    for x in roots:
        if not x.node.parents:
            raise NotImplementedError("a compiled function can't return a leaf that it makes")
        if x.node.retain:
            raise NotImplementedError("a compiled function can't return what retain_grad() was called of")


def _refuse_views(values: list[Value], traced: Traced) -> None:
    given = {traced.output(x).storage for x in traced.arguments} | {*traced.tracer.state}
    if any([value.storage in given for value in values]):
        raise NotImplementedError("a compiled function can't return a differentiable view of what it got")


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


def _backward(traced: Traced, roots: list[Tensor]) -> tuple[list[Value], list[Value | None]]:
    """Notes the backward pass; returns the values of the gradients that it gets, and of those that it gives,
    for each tensor among the arguments and then the state."""
    tracer = traced.tracer
    given = [*[x for x in traced.arguments if isinstance(x, Tensor)], *tracer.owners.values()]
    wanted = [x for x in given if x.requires_grad]
    if not roots:
        return [], [None] * len(given)
    incoming = [tracer.fresh(raw_of(y)) for y in roots]
    given_grads = [from_raw(g) for g in incoming]
    with _without_hooks([x for x in tracer.owners.values() if x.requires_grad]):  # the engine calls them
        grads = iter(grad(roots, wanted, given_grads, allow_unused=True))
    found = [next(grads) if x.requires_grad else None for x in given]
    if all([g is None for g in found]):
        raise NotImplementedError("a compiled function can't return what depends on a leaf that it makes")
    copied = {i.outputs[0]: i.args[0] for i in tracer.instructions if i.name == ".copy"}  # the engine copies
    values = [None if g is None else tracer.value(raw_of(g)) for g in found]  # what isn't its own, as always
    return [*map(tracer.value, incoming)], [copied.get(value, value) for value in values]
