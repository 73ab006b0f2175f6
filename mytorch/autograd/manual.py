"""
A backward function that adds to `.grad` by itself, as the original of this package writes its operations:

    out = Tensor(data, requires_grad=True, grad_fn=backward, grad_fn_name="<SquareBackward>")
    out._add_parents(x)

`backward(grad_output)` gets an Array, and sets `x.grad` or adds to it; in a `Function` or an `@op` it returns
the gradient.
"""

from __future__ import annotations

from ..core.array import wrap
from ..core.tensor import Tensor


def _add_parents(out: Tensor, *parents: Tensor) -> None:
    """Records that a tensor with a `grad_fn` was computed from these.

    Each backward pass calls `grad_fn` while their `.grad` is None, and propagates what it leaves there.
    """
    node, backward = out._node, getattr(out._node, "vjp", None)
    if backward is None or node.parents:
        raise RuntimeError("_add_parents(): for a tensor made with requires_grad=True and a grad_fn, once")
    parents = tuple({id(x): x for x in parents}.values())

    def vjp(grad):
        if isinstance(grad, Tensor):
            raise RuntimeError(f"{node.name}: a grad_fn has no second derivative; use autograd.Function")
        nodes = [x._node for x in parents if x._node is not None]
        before, retained = [x._grad for x in parents], [n.retain for n in nodes]
        try:
            for x in parents:
                x._grad = None
            for n in nodes:
                n.retain = True  # else a `.grad` that `grad_fn` reads warns
            backward(wrap(grad))
            return tuple([None if x._grad is None else x._grad._array for x in parents])
        finally:
            for x, kept in zip(parents, before, strict=True):
                x._grad = kept
            for n, kept in zip(nodes, retained, strict=True):
                n.retain = kept

    node.parents, node.vjp = tuple([x.node for x in parents]), vjp
