"""Gradients of gradients: the walk of the engine with Tensors in place of raw arrays.

The gradient that a node passes on is a function of the incoming gradient and of what the node's vjp captured.
If that is no floating-point array, the vjp itself runs on Tensors, unless it is a kernel's. Otherwise the
step's forward pass runs again, on Tensors: then what the new vjp captures are Tensors, with a history that
leads to the inputs.
(An op's body calls NumPy's functions, which Tensors answer with our ops. A composite has its reference.)

Inputs that nobody holds any more are not kept for this: they are made again from their own inputs, and so on,
back to the leaves. A graph costs no memory for a second derivative that may never be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backends.dtypes import is_inexact
from ..core import engine
from ..core.closure import closure_arrays
from ..core.engine import Node, Parts
from ..core.grad_mode import enable_grad
from ..core.op import as_raw, common_dtype
from ..core.tensor import Tensor, from_raw, raw_of
from ..core.upcast import call_upcast
from ..ops.reduce import sum as total
from ..ops.shape import reshape


class Graph:
    """The tensors of a graph, found or made again; it belongs to one walk."""

    def __init__(self) -> None:
        self.made: dict[Node, Any] = {}  # the Tensor of a node, or the tuple of them

    def pull(self, node: Node, grad: Any, wanted: set[Node] | None) -> Iterator[tuple[Node, Any, bool]]:
        """Yield (parent, gradient or None, False), as `engine.pull_raw` does, on Tensors and recorded."""
        if not node.parents or (wanted is not None and not any([p in wanted for p in node.parents])):
            return
        with enable_grad():
            parts = (None,) * len(node.parents) if grad is None else self._parts(node, grad, wanted)
            for parent, part in zip(node.parents, parts, strict=False):
                if parent is not None and (wanted is None or parent in wanted):
                    yield parent, None if part is None else fit(part, parent), False

    def _parts(self, node: Node, grad: Any, wanted: set[Node] | None) -> tuple:
        _recover(node)
        call = None if node.recompute is None else node.recompute.call
        if (
            node.vjp is None
            or call is None
            or not (getattr(call, "is_kernel", False) or _holds_floats(node.vjp))
        ):
            return engine.parts_of(node, grad, wanted)
        args = self.arguments(node)
        reference = getattr(call, "reference", None)
        if reference is not None:
            return _through(reference, args, node, grad)
        result, vjp = _body_on_tensors(node, args)
        if isinstance(grad, Parts):
            grad = [grad.get(i) for i in range(len(result))]
        return engine.parts_of(node, grad, wanted, vjp)

    def arguments(self, node: Node) -> list:
        """The positional arguments of the node's call; those that want a gradient with their history."""
        again = node.recompute
        for i, parent in enumerate(node.parents):
            if parent is not None and again.args[i] is None:
                self._make(parent, again.versions[i] if again.versions else None)
            elif i < len(again.versions):
                _check_version(node, again.versions[i])
        return [
            self.made[p] if p is not None and a is None else a
            for a, p in zip(again.args, node.parents, strict=True)
        ]

    def _make(self, node: Node, version: Any) -> None:
        """Find the tensor of a node, or make it again from those of its parents, which comes first."""
        stack = [(node, version)]
        while stack:
            node, version = stack[-1]
            if node in self.made or self._find(node, version):
                stack.pop()
                continue
            _recover(node)
            if node.recompute is None:
                raise RuntimeError(
                    f"{node.name} of shape {node.shape} is needed again for the graph of the gradient, but "
                    "was freed or has been modified by an inplace operation"
                )
            again = node.recompute
            missing = [
                (p, again.versions[i] if again.versions else None)
                for i, p in enumerate(node.parents)
                if p is not None and again.args[i] is None and p not in self.made
            ]
            if missing:
                stack.extend(missing)
            else:
                args = self.arguments(node)
                made = again.call(*args, **again.kwargs)
                one = isinstance(made, tuple) and node.shape is not None  # the first is differentiable
                self.made[node] = made[0] if one else made
                stack.pop()

    def _find(self, node: Node, version: Any) -> bool:
        """Is the tensor that this node made still there, and unchanged?"""
        found = None if node.tensor is None else node.tensor()
        if found is not None and found._node is node and (version is None or version[0].count == version[1]):
            self.made[node] = found
        elif node.recompute is not None and node.recompute.call is None:  # a write: its result is the memory
            _check_version(node, node.recompute.versions[0])
            self.made[node] = from_raw(node.recompute.args[0])
            self.made[node]._node = node
        return node in self.made


def _recover(node: Node) -> None:
    while type(node.vjp) is engine.Deferred:
        node.vjp.recover()


def _check_version(node: Node, version: Any) -> None:
    if version is not None and version[0].count != version[1]:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"{node.name} (output of shape {node.shape}) needs it at version {version[1]}, it is at version "
            f"{version[0].count}"
        )


def _holds_floats(vjp: Any) -> bool:
    return any(is_inexact(a.dtype) for a in closure_arrays(vjp))


def _body_on_tensors(node: Node, args: list) -> tuple:
    """What the op's body gives, result and vjp, where it is run on Tensors."""
    call = node.recompute.call
    args = [from_raw(raw_of(a)) if hasattr(a, "_array") or isinstance(a, np.ndarray) else a for a in args]
    if call.promote is not None:
        dtype = common_dtype(args)
        dtype = dtype if is_inexact(dtype) else node.dtype
        args = [a.to(dtype) if isinstance(a, Tensor) and a.dtype != dtype else a for a in args]
    if call.upcasts is not None:
        return call_upcast(call.forward, args, node.recompute.kwargs, call.upcasts)
    return call.forward(*args, **node.recompute.kwargs)


def _through(reference: Any, args: list, node: Node, grad: Tensor) -> tuple:
    """The gradients of a composite's reference, walked back only as far as its arguments."""
    doors = [entrance(a) if p is not None else a for a, p in zip(args, node.parents, strict=True)]
    out = reference(*doors)
    pairs = [(out[i], g) for i, g in grad.items()] if isinstance(grad, Parts) else [(_first(out), grad)]
    roots = [(y.node, fit(g, y.node)) for y, g in pairs if y.node is not None]
    nodes = [d._node if p is not None else None for d, p in zip(doors, node.parents, strict=True)]
    found: dict[Node, Tensor] = {}
    if roots:
        inputs = {n for n in nodes if n is not None}
        engine.backward(roots, True, _keep(found), inputs, Graph().pull)
    return tuple(found.get(n) for n in nodes)


def _first(out: Any) -> Tensor:
    return out[0] if isinstance(out, tuple) else out


def _keep(found: dict) -> Any:
    def keep(node, grad, _, own):
        found[node] = grad

    return keep


def entrance(x: Tensor) -> Tensor:
    """The same tensor behind a node of its own, at which a walk can end; a leaf if `x` has no history."""
    out = x.detach()
    if x.node is None:
        return out.requires_grad_()
    node = Node("entrance", (x.node,), lambda g: g, x.data.shape, x.dtype, x.device)
    node.recompute = engine.Recompute(None, (x.data._array,), {}, ((x._version, x._version.count),))
    out._watch(node)
    return out


def fit(part: Any, node: Node) -> Any:
    """`part` as a Tensor in the shape, dtype and device of the node's output: see `engine.fit`."""
    if node.shape is None:
        return part
    part = part if isinstance(part, Tensor) else from_raw(as_raw(part))
    if part.data.shape != node.shape:
        extra = part.ndim - len(node.shape)
        stretched = (i for i, n in enumerate(node.shape, extra) if n == 1 and part.data.shape[i] != 1)
        part = reshape(total(part, (*range(extra), *stretched), True), node.shape)
    return part.to(device=node.device, dtype=node.dtype)
