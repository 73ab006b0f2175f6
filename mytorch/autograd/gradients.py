"""Gradients of several tensors at once: as return values (`grad`), or added to the leaves (`backward`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.device import RawArray, device_of, in_kind_of, on
from ..core import engine
from ..core.grad_accumulator import GradAccumulator
from ..core.graph import Node
from ..core.overriding import overriding
from ..core.tensor import Tensor, from_raw, raw_of
from ..ops.torch_function import overridable
from .higher import GradCollector, Recomputation


@overridable
def grad(
    outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], grad_outputs: Any = None,
    retain_graph: bool | None = None, create_graph: bool = False, only_inputs: bool = True,
    allow_unused: bool | None = None, is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Returns the gradients of the sum of `outputs` with respect to `inputs`; no `.grad` is touched.

    Args:
        outputs: what is differentiated.
        inputs: with respect to what.
        grad_outputs: a gradient for each output; None for scalars.
        retain_graph: keep the graph for another backward pass; by default if `create_graph`.
        create_graph: record the gradients' own graph, so that they can be differentiated again.
        allow_unused: return None for an input that the outputs don't depend on, instead of raising.
        materialize_grads: return zeros for such an input.
        only_inputs, is_grads_batched: as in PyTorch; only the defaults are supported.

    Raises:
        RuntimeError: an input needs no gradient or is unused; for the rest see `Tensor.backward`.
        ValueError: materialize_grads, but allow_unused is False.

    >>> x = mytorch.tensor([2.0, 3.0], requires_grad=True)
    >>> mytorch.autograd.grad((x**3).sum(), x)
    (tensor([12.00000 27.00000]),)
    """
    if not only_inputs or is_grads_batched:
        raise ValueError("grad(): only_inputs=False and is_grads_batched=True are not supported")
    if materialize_grads and allow_unused is False:
        raise ValueError("grad(): allow_unused must be None or True if materialize_grads is True")
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    nodes = [_node_of(x, "grad()") for x in inputs]
    wanted = set(nodes)
    roots = _roots(outputs, grad_outputs)
    if create_graph:
        roots = [
            (node, g if isinstance(g, Tensor) else from_raw(raw))
            for (node, raw), g in zip(roots, _listed(grad_outputs, len(roots)), strict=True)
        ]
    retain_graph = create_graph if retain_graph is None else retain_graph
    accumulator = GradCollector(wanted)
    engine.backward(
        roots, retain_graph, accumulator, wanted, Recomputation().input_grads if create_graph else None
    )
    results = [accumulator.found.get(node) for node in nodes]
    if materialize_grads:
        return tuple(_zeros(x) if g is None else g for x, g in zip(inputs, results, strict=True))
    unused = [i for i, g in enumerate(results) if g is None]
    if unused and not allow_unused:
        i = unused[0]
        raise RuntimeError(
            f"grad(): input {i} of shape {inputs[i].data.shape} appears not to have been used in the graph; "
            "set allow_unused=True if this is the desired behavior"
        )
    return tuple(results)


class _Only(GradAccumulator):
    """Adds to the `.grad` of some nodes' tensors only."""

    def __init__(self, wanted: set[Node]):
        super().__init__()
        self.wanted = wanted

    def finish(self, node: Node, retain_graph: bool) -> RawArray | None:
        return super().finish(node, node in self.wanted)

    def store(self, node: Node, grad: RawArray, owned: bool) -> None:
        if node in self.wanted:
            super().store(node, grad, owned)


def _zeros(x: Tensor) -> Tensor:
    with on(x.device):
        return from_raw(np.zeros_like(raw_of(x)))


def backward(
    tensors: Tensor | Sequence[Tensor], grad_tensors: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, *, inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradients of the sum of `tensors` to the `.grad` of the leaves, in one backward pass.

    Args:
        tensors: what is differentiated.
        grad_tensors: a gradient for each; None for scalars.
        retain_graph: keep the graph for another backward pass.
        inputs: fill the `.grad` of this tensor or these tensors only.

    Raises:
        RuntimeError: create_graph, because a `.grad` has no graph; for the rest see `Tensor.backward`.

    >>> x = mytorch.ones(2, requires_grad=True)
    >>> mytorch.autograd.backward((x * 2).sum())
    >>> x.grad
    Array([2.00000 2.00000], dtype=float32)
    """
    _refuse_graph(create_graph)
    engine.backward(_roots(tensors, grad_tensors), bool(retain_graph), *_only(inputs))


def tensor_backward(
    x: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """`x.backward()`: adds the derivative of this tensor to the `.grad` of every leaf that it was made from.

    Args:
        gradient: the derivative of some scalar with respect to this tensor, in its shape; 1 for a scalar.
        retain_graph: keep the graph for another backward pass, and every intermediate `.grad`.
        inputs: fill the `.grad` of this tensor or these tensors only.

    Raises:
        RuntimeError: nothing was recorded; not a scalar and no gradient; wrong shape; the graph was
            freed; an array that it needs was modified in place; create_graph, because a `.grad` has no graph.

    >>> x = mytorch.tensor([2.0, 3.0], requires_grad=True)
    >>> (x**2).sum().backward()
    >>> x.grad
    Array([4.00000 6.00000], dtype=float32)
    """
    if overriding:
        options = gradient, retain_graph, create_graph, inputs
        if overriding.dispatch(tensor_backward, (x, *options), {}) is not NotImplemented:
            return
    _refuse_graph(create_graph)
    engine.backward([_root(x, gradient)], bool(retain_graph), *_only(inputs))


def _listed(gradients: object, count: int) -> list:
    if gradients is None:
        return [None] * count
    return [gradients] if isinstance(gradients, Tensor) else list(gradients)


def _roots(tensors: object, gradients: object) -> list:
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    gradients = _listed(gradients, len(tensors))
    if len(gradients) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    return [_root(t, g) for t, g in zip(tensors, gradients, strict=True)]


def _node_of(x: Tensor, what: str) -> Node:
    """Returns the node of a tensor that must have one."""
    if x.node is None:
        shape = x.data.shape
        raise RuntimeError(f"{what}: a tensor of shape {shape} does not require grad and has no grad_fn")
    return x.node


def _only(inputs: object) -> tuple:
    """Returns the engine's arguments for filling the `.grad` of these tensors only: accumulator and nodes."""
    if inputs is None:
        return None, None
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not inputs:
        raise RuntimeError("backward(): inputs argument to backward cannot be empty")
    wanted = {_node_of(x, "backward(inputs=)") for x in inputs}
    return _Only(wanted), wanted


def _refuse_graph(create_graph: bool) -> None:
    if create_graph:
        raise RuntimeError(
            "backward(create_graph=True): a .grad is an Array and has no graph; "
            "autograd.grad(outputs, inputs, create_graph=True) returns gradients that have one"
        )


def _root(x: Tensor, gradient: object) -> tuple[Node, RawArray]:
    """Returns the tensor's node, and its gradient as a raw array; None means 1, for a scalar."""
    node = _node_of(x, "backward()")
    raw = raw_of(x)
    if gradient is None:
        if raw.size != 1:
            shape = raw.shape
            raise RuntimeError(f"grad can be implicitly created only for scalar outputs, got shape {shape}")
        if raw.dtype.kind == "c":
            raise RuntimeError(f"grad can be implicitly created only for real scalars, got {raw.dtype}")
        with on(node.device):
            return node, np.ones_like(raw)
    gradient = raw_of(gradient)
    if gradient.shape != raw.shape:
        shape = gradient.shape
        raise RuntimeError(f"mismatch in shape: the gradient has shape {shape}, the tensor {raw.shape}")
    if gradient.dtype.kind == "c" and raw.dtype.kind != "c":
        raise RuntimeError(f"the gradient is {gradient.dtype}, the tensor {raw.dtype}, which is real")
    gradient = in_kind_of(gradient, node.device)
    if device_of(gradient) is not node.device:
        found = device_of(gradient).full_name
        raise RuntimeError(f"the gradient is on {found}, the tensor on {node.device.full_name}")
    with on(node.device):
        # The caller's memory, of which a leaf gets a copy. A new object, as vjps that share work for a
        # gradient know it by its identity, and the caller may write into it before the next pass.
        return node, gradient.astype(raw.dtype, copy=False)[...]
