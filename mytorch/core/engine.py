"""The backward pass: a depth-first traversal of the graph with a gate at every node.

A node passes its gradient on only when every path from the loss has reached it; until then it waits. Counting
the paths first (`_count_consumers`) tells each gate how many gradients to expect. Both traversals keep their
own stack, so a graph may be as deep as memory allows.

Everything here is raw NumPy or CuPy arrays; what an op computes is the op's business (see `op`), and how
gradients are summed and stored is that of `grad_accumulator`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..backends.device import CPU, NO_CONTEXT, RawArray, on
from ..backends.float_errors import IGNORE, errors
from .closure import Vjp, holds
from .grad_accumulator import GradAccumulator, LazyGrad
from .grad_mode import _state
from .graph import Deferred, Node, OutputGrads, Version, shown_name
from .unbroadcast import match


def backward(
    roots: Sequence[tuple[Node, RawArray]], retain_graph: bool = False,
    accumulator: GradAccumulator | None = None, inputs: set[Node] | None = None,
    input_grads: Callable | None = None,
) -> None:
    """Propagates each root's gradient to the leaves.

    Args:
        roots: (node, gradient) pairs; the gradient is a raw array of the node's shape and dtype.
        retain_graph: keep what the graph saved, for another backward pass, and every intermediate `.grad`.
        accumulator: where gradients are summed and stored; by default in the `.grad` of the leaves.
        inputs: visit only the paths that lead to these nodes.
        input_grads: from a node's gradient to its inputs', as the function of that name; another one when the
            gradients are Tensors.

    Raises:
        RuntimeError: the graph was freed by an earlier backward pass, or an array that it needs was modified
            in place.
    """
    accumulator, input_grads = accumulator or GradAccumulator(), input_grads or raw_input_grads
    start = list(dict(roots))
    needed = None if inputs is None else _nodes_leading_to(inputs, start)
    waiting = _count_consumers(start, needed)
    for node, grad in roots:
        accumulator.add(node, grad)
    ready = [node for node in start if not waiting[node]]
    home = start[0].device if start else CPU  # most often that of all nodes
    with _running(waiting), on(home):
        while ready:
            node = ready.pop()
            with NO_CONTEXT if node.device is home else on(node.device):
                grad = accumulator.finish(node, retain_graph)
                for parent, part, owned in input_grads(node, grad, needed) if node.parents else ():
                    if part is not None:
                        accumulator.add(parent, part, owned)
                    waiting[parent] -= 1
                    if waiting[parent] == 0:
                        ready.append(parent)
                grad = part = None  # a LazyGrad holds activations
            if node.parents and not retain_graph:
                node.free()


def _count_consumers(roots: list[Node], needed: set[Node] | None) -> dict[Node, int]:
    """Counts the gradients that the roots and each node below them will receive from others."""
    consumers = dict.fromkeys(roots, 0)
    stack = list(roots)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and (needed is None or parent in needed):
                if parent not in consumers:
                    consumers[parent] = 0
                    stack.append(parent)
                consumers[parent] += 1
    return consumers


def _nodes_leading_to(inputs: set[Node], roots: list[Node]) -> set[Node]:
    """The nodes below the roots from which one of the inputs can be reached, and the inputs."""
    needed, entered = set(inputs), set()
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node not in entered:
            entered.add(node)
            stack.extend([p for p in node.parents if p is not None and p not in entered])
        else:  # all below it is known
            stack.pop()
            if node not in needed and any([p in needed for p in node.parents]):
                needed.add(node)
    return needed


def raw_input_grads(
    node: Node, grad: RawArray | None, needed: set[Node] | None
) -> list[tuple[Node, RawArray | LazyGrad | None, bool]]:
    """Returns (parent, gradient or None, whether it is owned) for each input that needs a gradient.

    The gradient has the shape, dtype and device of the input.
    """
    if needed is not None and not any([p in needed for p in node.parents]):
        return []
    call = call_vjp if (stream := _state.stream) is None else stream.call_vjp
    grads = list(call(node, grad, needed))
    grads.reverse()
    result, count = [], len(grads)
    for parent in node.parents:
        is_given = bool(grads)
        part = grads.pop() if is_given else None  # now the list holds it no more
        if parent is not None and (needed is None or parent in needed):
            if part is None:
                if not is_given and type(node.vjp) is tuple:
                    raise RuntimeError(
                        f"Function {shown_name(node.name)} returned {count} gradients for its "
                        f"{len(node.parents)} inputs"
                    )
                result.append((parent, None, False))
                continue
            if not (
                type(part) is np.ndarray and parent.device is CPU
                and part.shape == parent.shape and part.dtype == parent.dtype
            ):
                part = match(part, parent, node, count - len(grads) - 1)
            owned = is_owned(part)
            result.append((parent, part, owned))
    return result


def call_vjp(node: Node, grad: RawArray, needed: set[Node] | None = None, vjp: Vjp = None) -> tuple:
    """Returns what the node's vjp, or another in its place, returns for each parent; may be shorter.

    Where the output is complex, the gradient is conj(derivative) * g = conj(derivative * conj(g)): the vjp is
    called as if the numbers were real.
    """
    if node.vjp is None:
        raise RuntimeError(
            f"{node.name}: trying to go backward through the graph a second time, but what it saved was "
            "freed by the first; call backward(retain_graph=True) the first time"
        )
    if grad is None:
        return (None,) * len(node.parents)
    check_versions(node.saved, node, lambda version, count: _holds_written(node.vjp, version, count))
    if node.dtype.kind == "c":
        grad = conjugated(grad)
    vjp = vjp or node.vjp
    while type(vjp) is Deferred:  # a checkpoint may contain others
        vjp.recover()
        vjp = node.vjp
    if isinstance(vjp, tuple):
        grads = []
        for f, parent in zip(vjp, node.parents, strict=False):
            is_needed = f is not None and (needed is None or parent in needed)
            grads.append(f(grad) if is_needed else None)
        grads = tuple(grads)
    else:
        grads = vjp(grad)
        grads = grads if isinstance(grads, tuple) else (grads,)
    if node.dtype.kind == "c":
        grads = tuple(map(conjugated, grads))
    if _state.anomaly is not None:
        grads = tuple([g.array() if type(g) is LazyGrad else g for g in grads])
        _state.anomaly.check_gradients(node, grads)
    return grads


def check_versions(versions: Sequence[tuple[Version, int] | None], node: Node, overwritten: Callable) -> None:
    """Raises if an array that the node needs was modified in place after the node was made.

    Args:
        versions: of the arrays, as they were.
        overwritten: whether the writes to a Version since a count matter.

    Raises:
        RuntimeError: PyTorch's message.
    """
    for saved in versions:
        if saved is not None and saved[0].count != saved[1] and overwritten(*saved):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: {node.name} (output of shape {node.shape}) needs it at version {saved[1]}, "
                f"it is at version {saved[0].count}"
            )


def conjugated(grad: RawArray) -> RawArray:
    """Returns the complex conjugate of a gradient, raw or a Tensor; one that isn't complex as it is."""
    if isinstance(grad, OutputGrads):
        return OutputGrads({i: conjugated(g) for i, g in grad.items()})
    grad = grad.array() if type(grad) is LazyGrad else grad
    return np.conj(grad) if grad is not None and grad.dtype.kind == "c" else grad


def _holds_written(vjp: Vjp, version: Version, count: int) -> bool:
    """Whether the vjp holds an array in memory written since; its closure is searched only then."""
    return any([holds(vjp, memory) for memory in version.written_since(count)])


def is_owned(array: RawArray) -> bool:
    """Returns whether the caller's local variable is the only reference to this NumPy array and its memory.

    A view is owned, too, if nothing else refers to the array that it is a view of.
    """
    if type(array) is not np.ndarray or not array.flags.writeable:
        return False
    base = array.base
    if base is None:
        return sys.getrefcount(array) <= _OWNED_ARRAY
    return (
        sys.getrefcount(array) <= _OWNED_ARRAY
        and type(base) is type(array)
        and base.base is None
        and base.nbytes == array.nbytes
        and sys.getrefcount(base) <= _OWNED_BASE
    )


def _references(array: np.ndarray) -> tuple[int, int]:
    """What `is_owned` counts for an array and for its base."""
    base = array.base
    return sys.getrefcount(array), sys.getrefcount(base)


def _of_an_owned_view() -> tuple[int, int]:
    view = np.empty(2).reshape(1, 2)
    return _references(view)


_OWNED_ARRAY, _OWNED_BASE = _of_an_owned_view()  # Python's versions count the arguments of calls differently


class BackwardPass(NamedTuple):
    """What hooks may know of the backward pass that called them.

    nodes:  the roots and those below: all of them will be visited.
    at_end: functions to be called once, when they have been.
    """

    nodes: Container[Node]
    at_end: list[Callable[[], None]]


def current_backward_pass() -> BackwardPass | None:
    """Returns the backward pass that runs in this thread, the innermost one."""
    return _state.backward_pass


@contextmanager
def _running(nodes: Container[Node]) -> Iterator[None]:
    outer, _state.backward_pass = _state.backward_pass, BackwardPass(nodes, [])
    token = errors.set(IGNORE)  # inf and NaN are values, as in the forward pass
    try:
        yield
        for call in _state.backward_pass.at_end:
            call()
    finally:
        errors.reset(token)
        _state.backward_pass = outer
