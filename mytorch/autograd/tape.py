"""What is in the graph of a loss: its nodes in the order of the backward pass, and what they keep."""

from __future__ import annotations

from ..backends.device import RawArray
from ..core import engine
from ..core.closure import closure_arrays
from ..core.grad_accumulator import GradAccumulator
from ..core.graph import Deferred, Node, owner_of
from ..core.tensor import raw_of


class _Order(GradAccumulator):
    """Notes the nodes that the engine visits, and computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []

    def add(self, node: Node, grad: RawArray, owned: bool = False) -> None:
        pass

    def finish(self, node: Node, retain_graph: bool) -> None:
        self.nodes.append(node)


def backward_order(root: Node) -> list[Node]:
    """Returns the nodes below `root`, and `root`, in the order in which `backward()` visits them."""
    order = _Order()
    engine.backward([(root, None)], True, order, None, lambda node, *_: [
        (parent, None, False) for parent in node.parents if parent is not None
    ])
    return order.nodes


def shape_text(node: Node) -> str:
    """Returns dtype, shape and device of a node's result, as in float32[2,3]."""
    if node.shape is None:
        return "several"
    device = "" if str(node.device) == "cpu" else f"@{node.device}"
    return f"{node.dtype}[{','.join(map(str, node.shape))}]{device}"


def kept_arrays(node: Node) -> dict[int, int]:
    """Returns the bytes of what a vjp holds beside the leaves among its inputs, by the `id` of the array."""
    leaves = [p.tensor() for p in node.parents if p is not None and not p.parents and p.tensor is not None]
    there = [owner_of(raw_of(leaf)) for leaf in leaves if leaf is not None]
    arrays = [a for a in closure_arrays(node.vjp) if not any(owner_of(a) is owner for owner in there)]
    return {id(a): a.nbytes for a in arrays}


def kept_text(node: Node) -> str:
    """Returns what a node keeps for the backward pass, as in "keeps 24 B"; "" if nothing."""
    if not node.parents:
        return ""
    if node.vjp is None:
        return "freed"
    if type(node.vjp) is Deferred:
        return "computed again in the backward pass"
    kept = kept_arrays(node)
    return f"keeps {text_of_bytes(sum(kept.values()))}" if kept else ""


def text_of_bytes(nbytes: float) -> str:
    """Returns a number of bytes with a unit.

    >>> from mytorch.autograd.tape import text_of_bytes
    >>> text_of_bytes(1536), text_of_bytes(-3)
    ('1.50 KB', '-3 B')
    """
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes:.0f} B"
