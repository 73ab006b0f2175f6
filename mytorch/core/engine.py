"""
The autograd engine: a depth-first walk with a gate at every node.

A node passes its gradient on only when every path from the loss has reached it; until then it waits. Counting
the paths first (`_count_consumers`) tells each gate how many gradients to expect. Both walks keep their own
stack, so a graph may be as deep as memory allows.

Everything here is raw NumPy or CuPy arrays; what an op computes is the op's business (see `ops.op`).
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..backends.blas import column_sums
from ..backends.device import CPU, device, move, on
from ..backends.dtypes import is_half
from .backward_pass import under_way
from .closure import holds
from .grad_mode import _state
from .lazy_grad import LazyGrad
from .owned import is_owned

_BLAS = (np.dtype("float32"), np.dtype("float64"))


class Version:
    """How often an array was written in place; shared by all the tensors that see its memory."""

    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


class Node:
    """One step of the forward pass, and the way back through it.

    name:    the op.
    parents: the node of each positional input; None where no gradient is wanted; () for a leaf.
    vjp:     from the gradient of the output to those of the inputs (see `ops.op`); None once it is spent.
    shape, dtype, device: of the output, and so of its gradient; shape is None for several outputs.
    saved:   (version, count, extent) of each array that the vjp may need unchanged: of the op's inputs and
             outputs, and where they lie in memory; without an extent, it surely does.
    tensor:  weak reference to the Tensor that this node made, or that is this leaf.
    retain:  keep the gradient in that tensor's `.grad`.
    hooks:   called with the complete gradient; may return another.
    recompute: how to run the forward pass of this step once more, for gradients of gradients.
    trace:   where in the user's program it was made; only while anomalies are looked for.
    """

    __slots__ = (
        "name", "parents", "vjp", "shape", "dtype", "device", "saved", "tensor", "retain", "hooks",
        "recompute", "trace", "__weakref__",
    )  # fmt: skip

    def __init__(self, name, parents, vjp, shape, dtype, device=CPU, saved=()):
        self.name: str = name
        self.parents: tuple[Node | None, ...] = parents
        self.vjp: Any = vjp
        self.shape: tuple[int, ...] | None = shape
        self.dtype: np.dtype = dtype
        self.device: device = device
        self.saved: Sequence[tuple] = saved
        self.tensor: weakref.ref | None = None
        self.retain = False
        self.hooks: dict[int, Callable] | None = None
        self.recompute: Recompute | None = None
        self.trace: str | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {self.shape}>"


class Recompute(NamedTuple):
    """The call that made a node, without the tensors that other nodes can make again.

    call:     the op, a function of Tensors; None if `args` holds the raw result itself.
    args:     its positional arguments; None in place of a tensor that comes from the parent at this position.
    kwargs:   the others.
    versions: (version, count) of each argument that is a tensor, as they were.
    """

    call: Callable | None
    args: tuple
    kwargs: dict
    versions: tuple


class Deferred:
    """In place of a vjp: what it holds was let go, and comes back when `recover` runs (see `checkpoint`)."""

    __slots__ = ("recover", "__weakref__")

    def __init__(self, recover: Callable[[], None]):
        self.recover = recover


class Parts(dict):
    """The gradients of a node with several outputs, by the output's number, while they are collected."""

    def __add__(self, other: Parts) -> Parts:
        return Parts({**self, **other})

    __iadd__ = __add__


def backward(
    roots: Sequence[tuple[Node, Any]],
    retain_graph: bool = False,
    accumulate: Callable[[Node, Any, bool, bool], None] | None = None,
    inputs: set[Node] | None = None,
    pull: Callable | None = None,
) -> None:
    """Carry each root's gradient down to the leaves.

    Args:
        roots: (node, gradient) pairs; the gradient is a raw array of the node's shape and dtype.
        retain_graph: keep what the graph saved, for another walk, and every intermediate `.grad`.
        accumulate: called with (node, gradient, is it wanted in `.grad`, does nobody else hold it) for every
            node that is reached; by default adds to the `.grad` of leaves and of tensors that retain theirs.
        inputs: walk only on the paths that lead to these nodes.
        pull: takes a node's gradient to its parents, as `pull_raw` does; another one when the gradients are
            Tensors.

    Raises:
        RuntimeError: the graph was spent by an earlier walk, or an array that it needs was overwritten.
    """
    place_of = _place_of if accumulate is None else _no_place
    accumulate = accumulate or add_to_tensor
    raw, pull = pull is None, pull or pull_raw
    wanted = None if inputs is None else _leading_to(inputs, [node for node, _ in roots])
    waiting_for = _count_consumers([node for node, _ in roots], wanted)
    arrived: dict[Node, Any] = {}
    owned: set[Node] = set()  # nobody else holds their gradients, or sees them grow in place
    for node, grad in roots:
        _collect(arrived, owned, node, grad, raw, False)
    ready = [node for node in dict.fromkeys(node for node, _ in roots) if not waiting_for[node]]
    with np.errstate(all="ignore"), under_way(waiting_for):  # inf and NaN are values, as in the forward pass
        while ready:
            node = ready.pop()
            grad, own = arrived.pop(node, None), node in owned
            owned.discard(node)
            with on(node.device):
                if node.hooks is not None and grad is not None:
                    grad, own = _run_hooks(node, grad), False
                if grad is not None:
                    accumulate(node, grad, node.retain or retain_graph, own)
                for parent, part, sole in pull(node, grad, wanted):
                    if type(part) is LazyGrad:
                        _collect_pending(arrived, owned, parent, part, place_of)
                    elif part is not None:
                        _collect(arrived, owned, parent, part, raw, sole)
                    part = None  # a LazyGrad holds activations: not until the next node is done
                    waiting_for[parent] -= 1
                    if waiting_for[parent] == 0:
                        ready.append(parent)
            if not retain_graph and node.parents:
                node.vjp = node.recompute = None  # let go of the saved activations
                node.saved = ()


def _count_consumers(roots: list[Node], wanted: set[Node] | None) -> Counter:
    """How many gradients each node below the roots will receive."""
    consumers: Counter = Counter()
    stack, seen = list(dict.fromkeys(roots)), set(roots)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and (wanted is None or parent in wanted):
                consumers[parent] += 1
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
    return consumers


def _leading_to(inputs: set[Node], roots: list[Node]) -> set[Node]:
    """The nodes below the roots from which one of the inputs can be reached, and the inputs."""
    wanted, entered = set(inputs), set()
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node not in entered:
            entered.add(node)
            stack.extend([p for p in node.parents if p is not None and p not in entered])
        else:  # all below it is known
            stack.pop()
            if node not in wanted and any([p in wanted for p in node.parents]):
                wanted.add(node)
    return wanted


def _collect(arrived: dict, owned: set, node: Node, part: Any, raw: bool, sole: bool) -> None:
    if node not in arrived:
        arrived[node] = part
        if sole:
            owned.add(node)
        return
    with on(node.device):
        if node in owned:
            arrived[node] += part
        else:
            total = arrived[node] + part
            arrived[node] = np.asarray(total) if isinstance(total, np.generic) else total
            if raw:
                owned.add(node)


def _collect_pending(arrived: dict, owned: set, node: Node, part: LazyGrad, place_of: Callable) -> None:
    """The same for a gradient that is still to be computed: in its final place, if it has one."""
    if node in arrived:
        if node in owned:
            part.compute(arrived[node], 1)
        else:
            _collect(arrived, owned, node, part.array(), True, True)
        return
    place, beta = place_of(node)
    if place is None:
        place, beta = np.empty(part.shape, node.dtype, like=part.like), 0
    part.compute(place, beta)
    arrived[node] = place
    owned.add(node)


def _place_of(node: Node) -> tuple[Any, int]:
    """Where the gradient of a leaf ends up, and 1 if it is to be added to what is there; None if unknown."""
    tensor = node.tensor and node.tensor()
    return (None, 0) if tensor is None or node.hooks else tensor._grad_place()


def _no_place(node: Node) -> tuple[Any, int]:
    return None, 0


def pull_raw(node: Node, grad: Any, wanted: set[Node] | None) -> Iterator[tuple[Node, Any, bool]]:
    """Yield (parent, gradient or None, does nobody else hold it) for each input.

    The gradient has the shape, dtype and device of the input.
    """
    if not node.parents or (wanted is not None and not any([p in wanted for p in node.parents])):
        return
    parts = list(parts_of(node, grad, wanted))
    parts.reverse()
    for parent in node.parents:
        part = parts.pop() if parts else None  # now the list doesn't hold it any more
        if parent is not None and (wanted is None or parent in wanted):
            part = None if part is None else fit(part, parent)
            sole = is_owned(part)
            yield parent, part, sole


def parts_of(node: Node, grad: Any, wanted: set[Node] | None = None, vjp: Any = None) -> tuple:
    """What the node's vjp, or another in its place, gives to each parent; trailing ones may be missing."""
    if node.vjp is None:
        raise RuntimeError(
            f"{node.name}: trying to go backward through the graph a second time, but what it saved was "
            "freed by the first; call backward(retain_graph=True) the first time"
        )
    if grad is None:
        return (None,) * len(node.parents)
    _check_versions(node)
    vjp = vjp or node.vjp
    while type(vjp) is Deferred:  # a checkpoint may have others in it
        vjp.recover()
        vjp = node.vjp
    if isinstance(vjp, tuple):
        if wanted is None:
            parts = tuple([f and f(grad) for f in vjp])
        else:
            pairs = zip(vjp, node.parents, strict=False)
            parts = tuple([f(grad) if f and parent in wanted else None for f, parent in pairs])
    else:
        parts = vjp(grad)
        parts = parts if isinstance(parts, tuple) else (parts,)
    if _state.anomaly is not None:
        parts = tuple([part.array() if type(part) is LazyGrad else part for part in parts])
        _state.anomaly.check_gradients(node, parts)
    return parts


def _check_versions(node: Node) -> None:
    """Raise if an array was overwritten that the vjp holds. What it holds is only looked at if one was."""
    for version, count, place in node.saved:
        if version.count != count and (place is None or holds(node.vjp, place)):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: {node.name} (output of shape {node.shape}) needs it at version {count}, "
                f"it is at version {version.count}"
            )


def fit(grad: Any, node: Node) -> Any:
    """`grad` in the shape, dtype and device of the node's output: broadcasting and casting undone."""
    if node.shape is None:
        return grad
    if type(grad) is LazyGrad:
        if not node.parents and grad.shape == node.shape and grad.like.dtype == node.dtype:
            return grad
        grad = grad.array()
    if grad.shape != node.shape:
        grad = unbroadcast(grad, node.shape)
    if grad.dtype != node.dtype:
        grad = grad.real if grad.dtype.kind == "c" and node.dtype.kind != "c" else grad
        grad = grad.astype(node.dtype)
    if type(grad) is np.ndarray and node.device is CPU:
        return grad
    if isinstance(grad, np.generic):  # NumPy's result where an array has no dimensions
        grad = np.asarray(grad)
    return move(grad, node.device)


def unbroadcast(grad: Any, shape: tuple[int, ...]) -> Any:
    """Sum `grad` down to `shape`; half precision is summed in float32."""
    extra = grad.ndim - len(shape)
    if grad.size > 4096 and grad.shape[extra:] == shape and grad.dtype in _BLAS:  # a bias, usually
        return np.reshape(column_sums(np.reshape(grad, (math.prod(grad.shape[:extra]), -1))), shape)
    stretched = tuple(extra + i for i, n in enumerate(shape) if n == 1 and grad.shape[extra + i] != 1)
    axes = (*range(extra), *stretched)
    wide = np.float32 if is_half(grad.dtype) else None
    return np.reshape(np.sum(grad, axis=axes, keepdims=True, dtype=wide), shape)


def _run_hooks(node: Node, grad: Any) -> Any:
    for hook in list(node.hooks.values()):
        grad = hook(grad)
    return grad


def add_to_tensor(node: Node, grad: Any, wanted: bool, own: bool) -> None:
    """Add to the tensor's `.grad`: for a leaf always, for a result of an op if it is wanted there.

    Args:
        own: nobody else holds this array, so it may become the `.grad`.
    """
    if node.tensor is None or (node.parents and not wanted):
        return
    tensor = node.tensor()
    if tensor is not None:
        tensor._accumulate_grad(grad, own)
