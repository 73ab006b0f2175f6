"""Results: what a traced function returned, and where a backward pass begins."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.graph import Node, View
from ..core.op import as_raw
from ..core.tensor import Tensor, from_raw, replay_views
from ..utils.nested import Made, leaves, mapped
from .tracing.capture import Traced
from .tracing.number import Number, exact_size


@dataclass
class Output:
    """A tensor or a number that a function returns.

    Attributes:
        position: of a tensor or number among the outputs of the forward program, of numbers from -1
            downwards; of an argument, which is returned as it is, among the tensors that the function gets.
        is_argument: whether it is an argument.
    """

    position: int
    is_argument: bool = False


class Results:
    """What a function returned, which is made again in each call.

    Args:
        traced: the function after its run, within the context of `traced`.

    Attributes:
        structure: what the function returned, with an Output in the place of each tensor and number.
        tensors: that it returned, each once, without arguments.
        numbers: what stands for the numbers that it returned, the last one first.
        roots: the positions of the tensors that a backward pass begins at.
        freed: by position, the name of a node, and its dtype and device: a backward pass has freed it, and
            another one raises an error.
        views: by position, the position of the tensor that one is a view of, and the ops that lead there.

    Raises:
        NotImplementedError: a differentiable result is a leaf, or has a `.grad`.
    """

    def __init__(self, traced: Traced):
        self.tensors: list[Tensor] = []
        self.numbers: list[Number] = []
        self.structure = mapped(lambda x: self._output(x, traced.arguments), traced.result)
        nodes = {k: x.node for k, x in enumerate(self.tensors) if x.node is not None}
        freed = _freed([*nodes.values()])
        roots = [k for k, node in nodes.items() if node not in freed]
        _refuse_grads([nodes[k] for k in roots])
        target = traced.tracer.device
        self.freed = {k: (x.name, x.dtype, target) for k, x in nodes.items() if x in freed}
        self.views = _views([(k, self.tensors[k]) for k in roots])
        self.roots = [k for k in roots if k not in self.views]
        views = {k: self.tensors[k]._view for k in self.roots}
        self._multiple = [k for k, view in views.items() if view is not None and view.multiple]
        self._count = len(self.tensors)
        self.is_tensor = type(self.structure) is Output and not self.structure.is_argument
        self.is_tensor = self.is_tensor and not self.roots and not self.numbers

    def forget_trace(self) -> None:
        """Forgets what was traced, which holds no elements."""
        self.tensors, self.numbers = [], []

    def _output(self, x: object, arguments: list[object]) -> Any:
        """Returns the Output for a tensor or a number, and notes it, unless it is an argument."""
        x = exact_size(x)
        if type(x) is Made:
            return Made(x.kind, mapped(lambda y: self._output(y, arguments), x.fields))
        if type(x) is Number:
            self.numbers.insert(0, x)
            return Output(-len(self.numbers))
        if isinstance(x, np.ndarray) or hasattr(x, "_array"):
            raise NotImplementedError("a compiled function returns tensors, not Arrays")
        if not isinstance(x, Tensor):
            return x
        if (k := _position(x, arguments)) is not None:
            return Output(k, is_argument=True)
        if (k := _position(x, self.tensors)) is None:
            k = len(self.tensors)
            self.tensors.append(x)
        return Output(k)

    def made(self, outputs: Sequence[Any]) -> list[Any]:
        """Returns the tensors for what the forward program returned, and its numbers."""
        return [*[from_raw(as_raw(y)) for y in outputs[: self._count]], *outputs[self._count :]]

    def make_views(self, made: list[Any]) -> None:
        """Makes views of the tensors that they are views of, which have been recorded."""
        for k in self._multiple:
            made[k]._view = View(made[k].detach(), (), multiple=True)
        for k, (base, replay) in self.views.items():
            made[k] = replay_views(replay, made[base])

    def give_freed_nodes(self, made: list[Any]) -> None:
        """Gives tensors the nodes of a graph that a backward pass has freed."""
        for k, (name, *kind) in self.freed.items():
            made[k]._node = Node(name, (None,), None, made[k]._data._array.shape, *kind)
            made[k]._node.tensor = weakref.ref(made[k])

    def nested(self, made: list[Any], arguments: Sequence[Any]) -> Any:
        """Returns the tensors, and the arguments that are returned, nested as the function returned them."""

        def leaf(x: object) -> object:
            if type(x) is Made:
                return x.mapped(leaf)
            if not isinstance(x, Output):
                return x
            return arguments[x.position] if x.is_argument else made[x.position]

        return mapped(leaf, self.structure)


def _position(x: object, objects: Sequence[object]) -> int | None:
    return next((k for k, y in enumerate(objects) if y is x), None)


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
            found[k] = positions[id(view.base)], mapped(exact_size, view.replay)
    return found


def _refuse_grads(roots: list[Node]) -> None:
    """Raises an error if a result gets a `.grad`: the backward program has gradients of what it got alone."""
    for node in roots:
        if not node.parents:
            raise NotImplementedError("a compiled function can't return a leaf that it makes")
        if node.retain:
            raise NotImplementedError("a compiled function can't return what retain_grad() was called of")
