"""Custom functions: a forward and a backward written by the user, on Tensors, as in PyTorch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.device import RawArray
from ..backends.dtypes import DTypeLike
from ..core.engine import check_versions, conjugated
from ..core.grad_mode import _state, no_grad, set_grad_enabled
from ..core.graph import Node
from ..core.op import connect
from ..core.tensor import Tensor, from_raw, increment_version, raw_of


class Context:
    """What forward leaves for backward; any attribute may be set on it.

    Attributes:
        needs_input_grad: for each input of `apply`, whether it wants a gradient.
        saved_tensors: what `save_for_backward` was given.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]):
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._nodes: tuple[Callable, ...] = ()  # of what is saved: each returns the node, or None
        self._history = False
        self._fixed: tuple = ()
        self._dirty: tuple = ()
        self._versions: list = []  # of what is saved, as it was
        self._materialize = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; it raises there if one of them was overwritten in between."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save tensors, got {type(t).__name__}")
        self._saved = tuple(None if t is None else t.detach() for t in tensors)

    def _link(self, tensors: tuple) -> None:
        """Find out which of the inputs and outputs were saved, for a backward that is differentiated."""

        def node_of(saved: Tensor | None) -> Callable:
            if saved is not None:
                for t in tensors:
                    if isinstance(t, Tensor) and raw_of(t) is raw_of(saved) and t._node is not None:
                        return weakref.ref(t._node)
            return lambda: None

        self._nodes = tuple(map(node_of, self._saved))

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        if not self._history:
            return self._saved
        return tuple(
            None if t is None else _with_history(t, node())
            for t, node in zip(self._saved, self._nodes, strict=True)
        )

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """These outputs get no gradient."""
        self._fixed = outputs

    def mark_dirty(self, *inputs: Tensor) -> None:
        """These inputs are written in place by forward, and returned."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (default) or None for an output that has no gradient."""
        self._materialize = value


def _with_history(t: Tensor, node: Node | None) -> Tensor:
    t = t.detach()
    t._node = node
    return t


class Function:
    """Base of custom differentiable functions.

        class Square(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return 2 * x * g

        y = Square.apply(x)

    `forward` may also be written without `ctx`, with a `setup_context(ctx, inputs, output)` beside it.
    `backward` gets the gradient of each output and returns one, or None, for each input of `apply`.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a Function must implement forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> Any:
        raise NotImplementedError("a Function must implement backward(ctx, ...) to be differentiated")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple, output: object) -> None:
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward on the inputs and records backward as the vjp."""
        ctx = Context(tuple(isinstance(a, Tensor) and a.requires_grad for a in args))
        run = cls._run if (stream := _state.stream) is None else stream.recorded_function(cls)
        with no_grad():
            result = run(ctx, args, kwargs)
        several = isinstance(result, tuple)
        outs = [cls._output(ctx, args, r) for r in (result if several else (result,))]
        tensors = [o for o in outs if isinstance(o, Tensor)]
        node = connect(cls._call(), args, kwargs, tensors, cls._vjp(ctx, len(args), tensors), several=True)
        if node is not None:
            ctx._versions = [(t._version, t._version.count) for t in ctx._saved if t is not None]
            ctx._node, node.saved = weakref.ref(node), ()
            ctx._link((*args, *outs))
            for t in tensors:
                if any(t is fixed for fixed in ctx._fixed):
                    t._node = None
        return tuple(outs) if several else outs[0]

    @classmethod
    def _run(cls, ctx: Context, args: tuple, kwargs: dict) -> Any:
        if cls._takes_context():
            return cls.forward(ctx, *args, **kwargs)
        result = cls.forward(*args, **kwargs)
        cls.setup_context(ctx, args, result)
        return result

    @classmethod
    def _takes_context(cls) -> bool:
        return cls.setup_context is Function.setup_context

    @classmethod
    def _call(cls) -> Callable:
        """`apply` under the name that its node has in the graph."""

        def call(*args, **kwargs):
            return cls.apply(*args, **kwargs)

        call.__name__ = cls.__name__
        return call

    @classmethod
    def _output(cls, ctx: Context, args: tuple, r: object) -> Any:
        """An output with a node of its own: an input that is handed back unchanged becomes a new tensor."""
        if not isinstance(r, Tensor):
            return r
        if any(r is d for d in ctx._dirty):
            increment_version(r)
            return r
        return r.detach() if any(r is a for a in args) else r

    @classmethod
    def _vjp(cls, ctx: Context, count: int, outs: list[Tensor]):
        zeros = [(o.data.shape, o.data.dtype) for o in outs]

        def vjp(gradients):
            check_versions(ctx._versions, ctx._node(), lambda *_: True)
            if ctx._materialize:
                like = next(g for g in gradients if g is not None)
                gradients = [_zeros(like, *zeros[i]) if g is None else g for i, g in enumerate(gradients)]
            with_graph = any(isinstance(g, Tensor) for g in gradients)  # a graph of the gradient is wanted
            ctx._history = with_graph
            with set_grad_enabled(with_graph):
                parts = cls.backward(ctx, *(g if g is None or with_graph else from_raw(g) for g in gradients))
            parts = parts if isinstance(parts, tuple) else (parts,)
            if len(parts) < count or any(p is not None for p in parts[count:]):
                raise RuntimeError(
                    f"{cls.__name__}.backward returned {len(parts)} gradients for the {count} inputs of "
                    "forward"
                )
            _require_real(cls.__name__, parts, ctx._node().parents)
            return tuple(p if p is None or with_graph else raw_of(p) for p in parts[:count])

        if not outs or outs[0].dtype.kind != "c":
            return vjp
        return lambda gradients: tuple(map(conjugated, vjp(list(map(conjugated, gradients)))))  # undoes it


def _require_real(name: str, parts: tuple, parents: tuple[Node | None, ...]) -> None:
    """Raises RuntimeError for a complex gradient of a real input, whose imaginary part would be lost."""
    for i, (part, parent) in enumerate(zip(parts, parents, strict=False)):
        if part is not None and parent is not None and parent.dtype is not None and parent.dtype.kind != "c":
            dtype = getattr(part, "dtype", None)
            if dtype is not None and dtype.kind == "c":
                raise RuntimeError(
                    f"Function {name} returned an invalid gradient at index {i} - got {dtype} but the input "
                    f"is {parent.dtype}"
                )


def _zeros(like: RawArray | Tensor, shape: tuple[int, ...], dtype: DTypeLike) -> RawArray | Tensor:
    if isinstance(like, Tensor):
        return from_raw(np.zeros_like(raw_of(like), shape=shape, dtype=dtype))
    return np.zeros_like(like, shape=shape, dtype=dtype)
