"""Accumulates gradients: of a node until all its consumers have contributed, then in a leaf's `.grad`.

A gradient is *owned* if no other object holds it: then it may be added to in place, and become a `.grad`
without a copy. A vjp may return whatever it likes (the incoming gradient, a view of it, an array that its
closure keeps), and CPython's reference counts tell these apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backends.device import CPU, NO_CONTEXT, RawArray, copied, copied_as, on
from .array import wrap
from .graph import Node


class LazyGrad:
    """What a vjp may return as a leaf's gradient; for any other node it is computed at once.

    Args:
        shape: of the gradient.
        like: an array of its dtype and device.
        compute: `compute(out, beta)` sets `out` to the gradient + beta * out, beta being 0 or 1; with 0,
            `out` may be uninitialized.
    """

    __slots__ = ("shape", "like", "compute")

    def __init__(self, shape: Sequence[int], like: RawArray, compute: Callable[[RawArray, int], None]):
        self.shape, self.like, self.compute = tuple(shape), like, compute

    def array(self) -> RawArray:
        """Returns the gradient in memory of its own."""
        out = np.empty(self.shape, self.like.dtype, like=self.like)
        self.compute(out, 0)
        return out


class GradAccumulator:
    """The gradients of one backward pass that have arrived at nodes which still wait for others.

    The default one stores gradients in the `.grad` of leaves, and of tensors that retain theirs.
    """

    def __init__(self) -> None:
        self._grads: dict[Node, RawArray] = {}
        self._owned: set[Node] = set()

    def add(self, node: Node, grad: RawArray | LazyGrad, owned: bool = False) -> None:
        """Adds a gradient to the node's.

        Args:
            owned: nothing but the caller's variable holds this array.
        """
        if type(grad) is LazyGrad:
            self._add_lazy(node, grad)
        elif node not in self._grads:
            self._grads[node] = grad
            if owned:
                self._owned.add(node)
        elif node in self._owned:
            self._grads[node] += grad
        else:
            with NO_CONTEXT if node.device is CPU else on(node.device):
                total = self._grads[node] + grad
            self._grads[node] = np.asarray(total) if isinstance(total, np.generic) else total
            self._owned.add(node)

    def _add_lazy(self, node: Node, grad: LazyGrad) -> None:
        if node in self._owned:
            grad.compute(self._grads[node], 1)
        elif node in self._grads:
            self.add(node, grad.array(), True)
        else:
            out, beta = self.destination(node)
            if out is None:
                out, beta = np.empty(grad.shape, node.dtype, like=grad.like), 0
            grad.compute(out, beta)
            self._grads[node] = out
            self._owned.add(node)

    def finish(self, node: Node, retain_graph: bool) -> RawArray | None:
        """Returns the node's complete gradient, or None, after its hooks ran and `.grad` was updated."""
        if node not in self._grads:
            return None
        grad, owned = self._grads.pop(node), node in self._owned
        if owned:
            self._owned.remove(node)
        if node.hooks is not None:
            for hook in list(node.hooks.values()):
                grad, owned = hook(grad), False
        if not node.parents or node.retain or retain_graph:
            self.store(node, grad, owned)
        return grad

    def store(self, node: Node, grad: RawArray, owned: bool) -> None:
        """Adds the complete gradient of a leaf, or of a node that retains it, to `.grad`; then runs hooks.

        A `.grad` shares memory with nothing but its slot in a flat buffer. Its dims lie in memory in the
        order of the tensor's: see "gradient layout contract" in PyTorch's functions/accumulate_grad.h.
        """
        tensor = node.tensor and node.tensor()
        if tensor is None:
            return
        if tensor._grad is not None:
            if grad is not tensor._grad._array:  # else it was computed there: see `destination`
                tensor._grad._array[...] += grad
        elif tensor.grad_slot is not None:
            tensor._grad = tensor.grad_slot.take(grad)
        else:
            like = tensor._data._array
            if grad.strides != like.strides:
                grad = copied_as(grad, like)
            elif not owned:
                grad = copied(grad)
            tensor._grad = wrap(grad)
        if tensor._post_hooks:
            for hook in list(tensor._post_hooks.values()):
                if hook(tensor) is not None:
                    raise RuntimeError("Tensor post accumulate grad hooks should return None.")

    def destination(self, node: Node) -> tuple[RawArray | None, int]:
        """The memory that `.grad` will have, or None, and the beta to compute into it: 1 if it holds one."""
        tensor = node.tensor and node.tensor()
        if tensor is None or node.hooks:
            return None, 0
        if tensor._grad is not None:
            return tensor._grad._array, 1
        return (None, 0) if tensor.grad_slot is None else (tensor.grad_slot.reserve(), 0)
