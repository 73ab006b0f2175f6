"""Gradients of gradients: the backward pass with Tensors in place of raw arrays.

The gradient that a node passes on is a function of the incoming gradient and of the arrays in its vjp's
closure. If none of them is floating-point, the vjp itself runs on Tensors, unless it is a kernel's. Otherwise
the forward of the node runs again, on Tensors: then the new vjp's closure holds Tensors, with a history that
leads to the inputs.
(An op's body calls NumPy's functions, which Tensors answer with our ops. A composite has its reference.)

Inputs that no other object holds are not kept for this: they are recomputed from their own inputs, and so on,
back to the leaves. A graph costs no memory for a second derivative that may never be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..backends.device import RawArray, is_raw
from ..backends.dtypes import is_inexact
from ..core import engine
from ..core.closure import Vjp, closure_arrays
from ..core.grad_accumulator import GradAccumulator
from ..core.grad_mode import enable_grad
from ..core.graph import (
    Deferred,
    Node,
    OutputGrads,
    Recompute,
    Version,
    new_recompute,
)
from ..core.op import as_raw, common_dtype
from ..core.overriding import DisableTorchFunction
from ..core.tensor import Tensor, from_raw, raw_of
from ..core.unbroadcast import require_reducible
from ..core.upcast import call_upcast
from ..ops.reduce import sum as total
from ..ops.shape import reshape


class GradCollector(GradAccumulator):
    """Collects the gradients of some nodes as Tensors; no `.grad` is touched.

    Attributes:
        found: the gradients by node.
    """

    def __init__(self, wanted: set[Node]):
        super().__init__()
        self.wanted, self.found = wanted, {}

    def add(self, node: Node, grad: RawArray | Tensor, owned: bool = False) -> None:
        if isinstance(grad, Tensor):  # with a graph of its own: its sums are recorded
            self._grads[node] = self._grads[node] + grad if node in self._grads else grad
        else:
            super().add(node, grad, owned)

    def finish(self, node: Node, retain_graph: bool) -> RawArray | None:
        return super().finish(node, retain_graph or node in self.wanted)

    def store(self, node: Node, grad: RawArray | Tensor, owned: bool) -> None:
        if node in self.wanted:
            self.found[node] = grad if isinstance(grad, Tensor) else from_raw(grad if owned else grad.copy())

    def destination(self, node: Node) -> tuple[None, int]:
        return None, 0


class Recomputation:
    """The tensors of a graph, found or recomputed; it belongs to one backward pass."""

    def __init__(self) -> None:
        self.tensors: dict[Node, Any] = {}  # the Tensor of a node, or the tuple of them

    def input_grads(
        self, node: Node, grad: RawArray, needed: set[Node] | None
    ) -> Iterator[tuple[Node, Tensor | None, bool]]:
        """Yields (parent, gradient or None, False) like `engine.raw_input_grads`, on Tensors and recorded."""
        if needed is not None and not any([p in needed for p in node.parents]):
            return
        with enable_grad():
            with DisableTorchFunction():  # of the leaves' classes: gradients are plain tensors
                parts = (None,) * len(node.parents) if grad is None else self._call_vjp(node, grad, needed)
            for i, (parent, part) in enumerate(zip(node.parents, parts, strict=False)):
                if parent is not None and (needed is None or parent in needed):
                    yield parent, None if part is None else match(part, parent, node, i), False

    def _call_vjp(self, node: Node, grad: RawArray, needed: set[Node] | None) -> tuple:
        _recover(node)
        call = None if node.recompute is None else node.recompute.call
        if (
            node.vjp is None
            or call is None
            or not (getattr(call, "is_kernel", False) or _holds_floats(node.vjp))
        ):
            return engine.call_vjp(node, grad, needed)
        args = self.arguments(node)
        reference = getattr(call, "reference", None)
        if reference is not None:
            return _through(reference, args, node, grad)
        result, vjp = _body_on_tensors(node, args)
        if isinstance(grad, OutputGrads):
            grad = [grad.get(i) for i in range(len(result))]
        return engine.call_vjp(node, grad, needed, vjp)

    def arguments(self, node: Node) -> list:
        """The positional arguments of the node's call; those that need a gradient with their history."""
        recompute = node.recompute
        for i, parent in enumerate(node.parents):
            version = _version_of_argument(recompute, i)
            if parent is not None and recompute.args[i] is None:
                self._make(parent, version)
            else:
                engine.check_versions([version], node, lambda *_: True)
        return [
            self.tensors[p] if p is not None and a is None else a
            for a, p in zip(recompute.args, node.parents, strict=True)
        ]

    def _make(self, node: Node, version: tuple[Version, int] | None) -> None:
        """Finds the tensor of a node, or recomputes it from those of its parents, which are made first."""
        stack = [(node, version)]
        while stack:
            node, version = stack[-1]
            if node in self.tensors or self._find(node, version):
                stack.pop()
                continue
            _recover(node)
            recompute = node.recompute
            if recompute is None:
                raise RuntimeError(
                    f"{node.name} of shape {node.shape} is needed again for the graph of the gradient, but "
                    "was freed or has been modified by an inplace operation"
                )
            missing = [
                (p, _version_of_argument(recompute, i))
                for i, p in enumerate(node.parents)
                if p is not None and recompute.args[i] is None and p not in self.tensors
            ]
            if missing:
                stack.extend(missing)
            else:
                result = recompute.call(*self.arguments(node), **recompute.kwargs)
                first = isinstance(result, tuple) and node.shape is not None  # only that is differentiable
                self.tensors[node] = result[0] if first else result
                stack.pop()

    def _find(self, node: Node, version: tuple[Version, int] | None) -> bool:
        """Whether the tensor that this node made still exists, unchanged."""
        found = None if node.tensor is None else node.tensor()
        if found is not None and found._node is node and (version is None or version[0].count == version[1]):
            self.tensors[node] = found
        elif node.recompute is not None and node.recompute.call is None:  # a write: its result is the memory
            engine.check_versions(node.recompute.versions[:1], node, lambda *_: True)
            self.tensors[node] = from_raw(node.recompute.args[0])
            self.tensors[node]._node = node
        return node in self.tensors


def _version_of_argument(recompute: Recompute, i: int) -> tuple[Version, int] | None:
    return recompute.versions[i] if i < min(len(recompute.args), len(recompute.versions)) else None


def _recover(node: Node) -> None:
    while type(node.vjp) is Deferred:
        node.vjp.recover()


def _holds_floats(vjp: Vjp) -> bool:
    return any(is_inexact(a.dtype) for a in closure_arrays(vjp))


def _body_on_tensors(node: Node, args: list) -> tuple:
    """Returns result and vjp of the op's body, run on Tensors."""
    call = node.recompute.call
    args = [from_raw(raw_of(a)) if hasattr(a, "_array") or is_raw(a) else a for a in args]
    if call.promote is not None:
        dtype = common_dtype(args)
        dtype = dtype if is_inexact(dtype) else node.dtype
        args = [a.to(dtype) if isinstance(a, Tensor) and a.dtype != dtype else a for a in args]
    if call.upcasts is not None:
        return call_upcast(call.forward, args, node.recompute.kwargs, call.upcasts)
    return call.forward(*args, **node.recompute.kwargs)


def _through(reference: Callable, args: list, node: Node, grad: Tensor) -> tuple:
    """The gradients of a composite's reference with respect to its arguments."""
    inputs = [entrance(a) if p is not None else a for a, p in zip(args, node.parents, strict=True)]
    out = reference(*inputs)
    pairs = [(out[i], g) for i, g in grad.items()] if isinstance(grad, OutputGrads) else [(_first(out), grad)]
    roots = [(y.node, match(g, y.node, node, 0)) for y, g in pairs if y.node is not None]
    nodes = [x._node if p is not None else None for x, p in zip(inputs, node.parents, strict=True)]
    accumulator = GradCollector({n for n in nodes if n is not None})
    if roots:
        engine.backward(roots, True, accumulator, accumulator.wanted, Recomputation().input_grads)
    return tuple(accumulator.found.get(n) for n in nodes)


def _first(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    return out[0] if isinstance(out, tuple) else out


def entrance(x: Tensor) -> Tensor:
    """Returns the tensor behind a node of its own, at which a backward pass ends; a leaf without history."""
    out = x.detach()
    if x.node is None:
        return out.requires_grad_()
    node = Node("entrance", (x.node,), lambda g: g, x.data.shape, x.dtype, x.device)
    node.recompute = new_recompute((None, (raw_of(x),), {}, [(x._version, x._version.count)]))
    out._watch(node)
    return out


def match(part: object, node: Node, consumer: Node, i: int) -> Tensor:
    """Returns `part` as a Tensor in the shape, dtype and device of the node's output: see `unbroadcast`."""
    if node.shape is None:
        return part
    part = part if isinstance(part, Tensor) else from_raw(as_raw(part))
    if part.data.shape != node.shape:
        require_reducible(part.data.shape, node, consumer, i)
        extra = part.ndim - len(node.shape)
        stretched = (i for i, n in enumerate(node.shape, extra) if n == 1 and part.data.shape[i] != 1)
        part = reshape(total(part, (*range(extra), *stretched), True), node.shape)
    return part.to(device=node.device, dtype=node.dtype)
