"""A page on which each click runs one step of the backward pass: `mytorch.autograd.step_through`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends.device import RawArray
from ..core import engine
from ..core.array import wrap
from ..core.grad_accumulator import GradAccumulator, LazyGrad
from ..core.graph import Node, OutputGrads, shown_name
from ..core.tensor import Tensor
from .diagram import GRAY, MOST_CHARS, Box, Diagram
from .drawing import node_names, root_of
from .gradients import _root
from .pages import STEPPING
from .picture import Picture
from .tape import backward_order, shape_text

MOST_NODES = 500
MOST_CIRCLES = 12  # of a gate; more are a number


@dataclass
class Step:
    """A node that the engine visited, its gradient, and what it passed to whom; values as text."""

    node: Node
    gradient: str
    passed: list[tuple[Node, str]] = field(default_factory=list)


class _Recorder(GradAccumulator):
    """Notes what the engine does; no `.grad` is touched."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def finish(self, node: Node, retain_graph: bool) -> RawArray | None:
        grad = super().finish(node, retain_graph)
        self.steps.append(Step(node, value_text(grad)))
        return grad

    def store(self, node: Node, grad: RawArray, owned: bool) -> None:
        pass

    def destination(self, node: Node) -> tuple[None, int]:
        return None, 0

    def input_grads(self, node: Node, grad: RawArray, needed: set[Node] | None) -> list:
        """Returns the gradients of the inputs, as the engine's own function does, which it calls."""
        result = []
        for parent, part, _ in engine.raw_input_grads(node, grad, needed):
            part = part.array() if type(part) is LazyGrad else part
            self.steps[-1].passed.append((parent, value_text(part)))
            result.append((parent, part, False))  # it has been seen here: nothing may be added to it in place
        return result


def steps_of(loss: Tensor, gradient: Tensor | RawArray | None = None) -> list[Step]:
    """Returns what the engine does in `loss.backward(gradient)`, step by step; the graph stays as it is."""
    recorder = _Recorder()
    engine.backward([_root(loss, gradient)], True, recorder, None, recorder.input_grads)
    return recorder.steps


def step_through(
    loss: Tensor, path: str | os.PathLike | None = None, model: Any = None,
    names: Mapping[str, Tensor] | None = None, gradient: Tensor | RawArray | None = None,
) -> Picture:
    """Returns a page on which each click, or arrow key, runs one step of the backward pass.

    It shows the node that runs and the gradients that it passes on, at each gate how many gradients have
    arrived of how many, and which leaves have their `.grad`. The engine itself runs once for it, with the
    hooks of tensors: its order and its values are those of `loss.backward()`. No `.grad` changes, and the
    graph is kept.

    Args:
        path: also write the page there, as .html.
        model: a Module; names the leaves that are its parameters.
        names: of other tensors.
        gradient: of the loss; None for a scalar.

    Raises:
        TypeError: `loss` is no Tensor.
        RuntimeError: as `Tensor.backward`.
        ValueError: more than 500 nodes; another suffix.

    >>> x = mytorch.tensor(2.0, requires_grad=True)
    >>> h = x * 3
    >>> page = mytorch.autograd.step_through(h.square() + h, names={"x": x, "h": h})
    >>> [step["title"] for step in page.data]
    ['Count', 'add runs', 'square runs', 'mul (h) runs', 'x is a leaf']
    """
    root = root_of(loss, "step_through()")
    order = backward_order(root)
    if len(order) > MOST_NODES:
        raise ValueError(
            f"step_through(): a graph of {len(order)} nodes is more than one can click through "
            f"({MOST_NODES}); draw() shows it"
        )
    steps = steps_of(loss, gradient)
    titles = _titles(order, node_names(model, names))
    boxes = _boxes(steps, titles)
    diagram = Diagram(list(boxes.values()), {"node": ("#ffffff", GRAY)})
    page = Picture(STEPPING, diagram, _Story(steps, titles, boxes).told(), has_svg=False)
    if path is not None:
        page.save(path)
    return page


def value_text(grad: object) -> str:
    """Returns a gradient as text: its value if it is short, else its shape and norm."""
    if grad is None:
        return "none"
    if isinstance(grad, OutputGrads):
        return ", ".join([f"[{i}] {value_text(g)}" for i, g in sorted(grad.items())])
    if isinstance(grad, Tensor):
        return value_text(grad._data._array)
    array = wrap(grad)
    if array.numel() == 1:
        return f"{array.item():.4g}"
    if array.numel() <= 4:
        return np.array2string(array.cpu().numpy(), precision=3, separator=", ").replace("\n", "")
    return f"{tuple(array.shape)} of norm {array.norm().item():.3g}"


def _titles(order: Sequence[Node], names: dict[Node, str]) -> dict[Node, str]:
    """Returns a title for each node; ops of the same kind are numbered in the order of the forward pass."""
    bare = {node: shown_name(node.name) if node.parents else names.get(node, "leaf") for node in order[::-1]}
    several = {title for title, count in Counter(bare.values()).items() if count > 1}
    seen: Counter[str] = Counter()
    titles = {}
    for node, title in bare.items():
        seen[title] += 1
        title += f" #{seen[title]}" if title in several else ""
        titles[node] = f"{title} ({names[node]})" if node.parents and node in names else title
    return titles


def _boxes(steps: Sequence[Step], titles: dict[Node, str]) -> dict[Node, Box]:
    """Returns a box for each node, with lines for its value, its gate and its gradient."""
    expected = Counter([parent for step in steps for parent, _ in step.passed])
    boxes: dict[Node, Box] = {}
    for step in reversed(steps):
        node = step.node
        tensor = node.tensor and node.tensor()
        shown = shape_text(node) if node.shape is not None else "several outputs"
        if tensor is not None and tensor.numel() == 1:
            shown = f"= {tensor.item():.4g}"
        lines = [titles[node], shown, _gate(expected[node], 0), f"grad {step.gradient}"[:MOST_CHARS]]
        sources = dict.fromkeys([boxes[parent] for parent in node.parents if parent is not None])
        boxes[node] = Box("node", lines, list(sources))
    return boxes


class _Story:
    """Tells the steps: for each what the page shows, and a text."""

    def __init__(self, steps: Sequence[Step], titles: dict[Node, str], boxes: dict[Node, Box]):
        self.steps, self.titles, self.boxes = steps, titles, boxes
        self.expected = Counter([parent for step in steps for parent, _ in step.passed])
        self.arrived: dict[Node, list[str]] = {node: [] for node in boxes}
        self.open = [steps[0].node]  # the last of them runs next
        self.grads: dict[Node, str] = {}

    def told(self) -> list[dict[str, object]]:
        """Returns the data of the page: how it begins, then each step."""
        several = [n for n, count in self.expected.items() if count > 1]
        waiting = "".join([f" {self.titles[n]} will wait for {self.expected[n]}." for n in several[:3]])
        first = f"How many gradients will arrive at each gate?{waiting} {self._next()}"
        told = [self._shown("Count", first, None)]
        for step in self.steps:
            self.open.remove(step.node)
            self.grads[step.node] = step.gradient
            text = self._text(step)
            told.append(self._shown(self._title(step.node), f"{text} {self._next()}", step))
        return told

    def _title(self, node: Node) -> str:
        return f"{self.titles[node]} {'runs' if node.parents else 'is a leaf'}"

    def _text(self, step: Step) -> str:
        """Returns what a step does; counts what arrives and opens gates."""
        if not step.node.parents:
            return f"It adds the gradient {step.gradient} to its .grad."
        terms = self.arrived[step.node]
        which = f"The sum of its {len(terms)} gradients" if len(terms) > 1 else "Its gradient"
        if len(terms) > 1 and max(map(len, terms)) < 10:
            which += f", {' + '.join(terms)},"
        for parent, value in step.passed:
            self.arrived[parent].append(value)
            if len(self.arrived[parent]) == self.expected[parent]:
                self.open.append(parent)
        opened, waiting = [], []
        for parent, values in _by_parent(step).items():
            passed = f"{' and '.join(values)} to {self.titles[parent]}"
            missing = self.expected[parent] - len(self.arrived[parent])
            if missing:
                waiting.append(f"It passes {passed}, which waits for {missing} more.")
            else:
                opened.append(passed)
        texts = [f"{which} is {step.gradient}."]
        if opened:
            gates = "whose gate opens" if len(opened) == 1 else "whose gates open"
            texts.append(f"It passes {_listed(opened)}, {gates}.")
        return " ".join([*texts, *waiting])

    def _next(self) -> str:
        if not self.open:
            return "No gate is open: the backward pass is over."
        why = ", the last whose gate opened" if len(self.open) > 1 else ""
        return f"Next: {self.titles[self.open[-1]]}{why}."

    def _shown(self, title: str, text: str, step: Step | None) -> dict[str, object]:
        """Returns what the page shows after a step, by the numbers of the boxes."""
        passed = {} if step is None else _by_parent(step)
        return {
            "title": title, "text": text, "runs": step and self.boxes[step.node].number,
            "nodes": {box.number: self._node(node, step) for node, box in self.boxes.items()},
            "passed": {self.boxes[p].number: " and ".join(map(_short, v)) for p, v in passed.items()},
            "open": [self.titles[node] for node in self.open],
            "leaves": {self.titles[n]: _short(self.grads.get(n, "")) for n in self.boxes if not n.parents},
        }

    def _node(self, node: Node, step: Step | None) -> list[str]:
        """Returns the state of a node, its gate and its gradient."""
        gate = _gate(self.expected[node], len(self.arrived[node]))
        grad = f"grad {self.grads[node]}"[:MOST_CHARS] if node in self.grads else ""
        return [self._state(node, step), gate, grad]

    def _state(self, node: Node, step: Step | None) -> str:
        if step is not None and node is step.node:
            return "now"
        if node in self.grads:
            return "done"
        if node in self.open:
            return "open"
        return "waits" if self.arrived[node] else ""


def _by_parent(step: Step) -> dict[Node, list[str]]:
    """Returns what a step passes on, by the node that gets it: `x * x` passes two gradients to x."""
    passed: dict[Node, list[str]] = {}
    for parent, value in step.passed:
        passed.setdefault(parent, []).append(value)
    return passed


def _gate(expected: int, arrived: int) -> str:
    if expected > MOST_CIRCLES:
        return f"{arrived} of {expected}"
    return "●" * arrived + "○" * (expected - arrived)


def _short(value: str) -> str:
    """Returns a value without its shape, for an arrow."""
    return value[value.rfind("norm") :] if "norm" in value else value


def _listed(items: Sequence[str]) -> str:
    """Returns "a", "a and b", "a, b and c"."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
