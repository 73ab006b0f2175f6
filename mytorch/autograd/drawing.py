"""Draws the graph that the backward pass will visit, by modules: `mytorch.autograd.draw`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.graph import Node, shown_name
from ..core.tensor import Tensor
from .diagram import AMBER, BLUE, GRAY, LIGHT, MOST_CHARS, Box, Diagram
from .frames import Frames
from .pages import FOLDING
from .picture import Picture
from .tape import backward_order, kept_arrays, kept_text, shape_text, text_of_bytes

_COLOURS = {  # fill and edge
    "leaf": (LIGHT[BLUE], BLUE), "op": ("#ffffff", GRAY), "keeps": (LIGHT[AMBER], AMBER),
    "module": ("#ffffff", GRAY),
}


def draw(
    loss: Tensor, path: str | os.PathLike | None = None, model: Any = None,
    names: Mapping[str, Tensor] | None = None,
) -> Picture:
    """Returns a drawing of the graph of a loss; Jupyter shows it, and `save` writes it.

    A box is an operation, with the shape of its result and the bytes that it keeps for the backward pass (in
    amber), or a leaf (in blue), with the norm of its `.grad` where there is one. Several outputs of one
    operation are one box. With a model, operations are in the frames of their modules, which the HTML page
    opens and closes at a click. To which module an operation without parameters belongs is exact if the
    forward pass ran in `with mytorch.stream.record():`; otherwise it is that around its neighbours.

    Args:
        path: also write it there, as .svg, .html, or .png (with matplotlib).
        model: a Module; names the leaves that are its parameters.
        names: of other tensors.

    Raises:
        TypeError: `loss` is no Tensor.
        RuntimeError: no operation was recorded.
        ValueError: another suffix.

    >>> x = mytorch.ones(2, 3, requires_grad=True)
    >>> picture = mytorch.autograd.draw((x * x).sum(), names={"x": x})
    >>> picture.svg().count("<rect")  # the background, x, mul and sum
    4
    """
    root = root_of(loss, "draw()")
    order = backward_order(root)[::-1]
    labels = node_names(model, names)
    frames = {} if model is None else _frames(order, model)
    picture = Picture(FOLDING, Diagram(_Boxes(order, labels, frames, model).build(), _COLOURS))
    if path is not None:
        picture.save(path)
    return picture


def root_of(loss: Tensor, what: str) -> Node:
    """Returns the node of a loss."""
    if not isinstance(loss, Tensor):
        raise TypeError(f"{what}: expected a Tensor, got {type(loss).__name__}")
    if loss.node is None:
        raise RuntimeError(f"{what}: no operation was recorded: the tensor requires no gradient")
    return loss.node


def node_names(model: Any, names: Mapping[str, Tensor] | None) -> dict[Node, str]:
    """Returns the names of the parameters of a model, and of other tensors, by their nodes."""
    named = [*([] if model is None else model.named_parameters()), *(names or {}).items()]
    return {tensor.node: name for name, tensor in named if tensor.node is not None}


def grad_text(node: Node) -> str:
    """Returns the norm of the `.grad` of a node's tensor; "" if it has none."""
    tensor = node.tensor and node.tensor()
    if tensor is None or tensor._grad is None:
        return ""
    return f"grad norm {tensor._grad.norm().item():.3g}"


def _op(node: Node) -> Node:
    """Returns the node of the operation that made an output; other nodes as they are."""
    return node.parents[0] if node.name.endswith("]") else node


def _frames(order: Sequence[Node], model: Any) -> dict[Node, tuple[str, ...]]:
    """Returns for each operation the modules that it is in, outermost first; lists of modules are left out.

    Args:
        order: of the forward pass.
    """
    calls = [name for name, m in model.named_modules() if type(m).forward.__qualname__ != "Module.forward"]
    used: dict[Node, list[str]] = {}  # the modules that have this parameter
    for name, parameter in model.named_parameters(remove_duplicate=False):
        used.setdefault(parameter.node, []).append(name.rpartition(".")[0])
    known = {node: _module(node, used) for node in order if node.parents}
    before, after, nearest = "", {}, None
    for node in reversed(known):
        after[node] = nearest = nearest if known[node] is None else known[node]
    result = {}
    for node, path in known.items():
        if path is None:
            path = _common(before, after[node] or "")
        else:
            before = path
        result[node] = tuple([c for c in calls if c and f"{path}.".startswith(f"{c}.")])
    return result


def _module(node: Node, used: dict[Node, list[str]]) -> str | None:
    """Returns the path of the module that ran an operation, if the recorder or a parameter says so."""
    recorded = getattr(_op(node), "instruction", None)
    if recorded is not None:
        return recorded.module
    for parent in node.parents:
        if parent in used:
            return used[parent].pop(0) if len(used[parent]) > 1 else used[parent][0]
    return None


def _common(a: str, b: str) -> str:
    pairs = zip(a.split("."), b.split("."), strict=False)
    return ".".join([x for x, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])


class _Boxes:
    """Makes the boxes of a graph, each within the frames of its modules."""

    def __init__(self, order: Sequence[Node], labels: dict[Node, str], frames: dict, model: Any):
        self.labels, self.modules = labels, dict(model.named_modules()) if model else {}
        parameters = set() if model is None else {p.node for p in model.parameters()}
        # The modules of each node. Parameters come before their first user, other leaves before all.
        self.paths: dict[Node, tuple[str, ...]] = {
            node: () for node in order if not node.parents and node not in parameters
        }
        for node in order:
            if node.parents and _op(node) is node:
                inside = frames.get(node, ())
                self.paths |= {p: inside for p in node.parents if p in parameters and p not in self.paths}
                self.paths[node] = inside

    def build(self) -> list[Box]:
        """Returns the outermost boxes."""
        frames = Frames(self.paths, self._box, self._title)
        for node in self.paths:
            for parent in node.parents:
                if parent is not None:
                    frames.connect(_op(parent), node)
        return frames.boxes

    def _title(self, path: tuple[str, ...], nodes: Sequence[Node]) -> list[str]:
        outer = f"{path[-2]}." if len(path) > 1 else ""
        return [f"{path[-1].removeprefix(outer)} {type(self.modules[path[-1]]).__name__}", _total(nodes)]

    def _box(self, node: Node) -> Box:
        name, kept = self.labels.get(node, ""), kept_text(node)
        if not node.parents:
            title = name.removeprefix((self.paths[node] or ("",))[-1] + ".") or "leaf"
        else:
            title = shown_name(node.name) + (f" ({name})" if name else "")
        kind = "leaf" if not node.parents else "keeps" if kept.startswith("keeps") else "op"
        lines = [title, "several outputs" if node.shape is None else shape_text(node), kept, grad_text(node)]
        return Box(kind, [line[:MOST_CHARS] for line in lines if line])


def _total(nodes: Sequence[Node]) -> str:
    """Returns how many operations there are, and what they keep, each array once."""
    ops = [node for node in nodes if node.parents]
    kept = {k: n for node in ops if kept_text(node).startswith("keeps") for k, n in kept_arrays(node).items()}
    count = f"{len(ops)} operation{'s' * (len(ops) != 1)}"
    return f"{count}, keeps {text_of_bytes(sum(kept.values()))}" if kept else count
