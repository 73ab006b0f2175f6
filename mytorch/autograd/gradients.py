"""Gradients of several tensors at once: as return values (`grad`), or added to the leaves (`backward`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import on
from ..tensor import Tensor, from_raw, node_of, root
from . import engine
from .higher import Graph


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    allow_unused: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`, as Tensors; no `.grad` is touched.

    Args:
        outputs: what is differentiated.
        inputs: with respect to what.
        grad_outputs: a gradient for each output; None for scalars.
        retain_graph: keep the graph for another walk; by default if `create_graph`.
        create_graph: record the gradients' own graph, so that they can be differentiated again.
        allow_unused: give None for an input that the outputs don't depend on, instead of an error.
        materialize_grads: give zeros there instead.

    Raises:
        RuntimeError: an input needs no gradient or is unused; for the rest see `Tensor.backward`.
    """
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    nodes = [node_of(x, "grad()") for x in inputs]
    wanted, found = set(nodes), {}

    def keep(node, gradient, _):
        if node in wanted:
            found[node] = (
                gradient if create_graph else from_raw(gradient.copy())
            )  # what arrives may be shared

    roots = _roots(outputs, grad_outputs)
    if create_graph:
        roots = [
            (node, g if isinstance(g, Tensor) else from_raw(raw))
            for (node, raw), g in zip(roots, _listed(grad_outputs, len(roots)), strict=True)
        ]
    retain_graph = create_graph if retain_graph is None else retain_graph
    engine.backward(roots, retain_graph, keep, wanted, Graph().pull if create_graph else None)
    results = []
    for i, (x, node) in enumerate(zip(inputs, nodes, strict=True)):
        if node in found:
            results.append(found[node])
        elif materialize_grads:
            with on(node.device):
                results.append(from_raw(np.zeros_like(x.data._array)))
        elif allow_unused:
            results.append(None)
        else:
            raise RuntimeError(
                f"grad(): input {i} of shape {x.data.shape} appears not to have been used in the graph; "
                "set allow_unused=True if this is the desired behavior"
            )
    return tuple(results)


def backward(
    tensors: Tensor | Sequence[Tensor], grad_tensors: Any = None, retain_graph: bool = False
) -> None:
    """Add the gradients of the sum of `tensors` to the `.grad` of the leaves, in one walk.

    Args:
        tensors: what is differentiated.
        grad_tensors: a gradient for each; None for scalars.
        retain_graph: keep the graph for another walk.
    """
    engine.backward(_roots(tensors, grad_tensors), retain_graph)


def _listed(gradients: Any, count: int) -> list:
    if gradients is None:
        return [None] * count
    return [gradients] if isinstance(gradients, Tensor) else list(gradients)


def _roots(tensors: Any, gradients: Any) -> list:
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    gradients = _listed(gradients, len(tensors))
    if len(gradients) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    return [root(t, g) for t, g in zip(tensors, gradients, strict=True)]
