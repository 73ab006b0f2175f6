"""The graph that the forward pass records: one node an operation, from each result to its inputs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..backends.device import CPU, RawArray, device, device_of
from .closure import Vjp, extent
from .overriding import DisableTorchFunction

MAX_RANGES = 16  # that a Version keeps apart


class Version:
    """Counts the in-place writes to an array; shared by all tensors that see its memory.

    The array may be exchanged (`p.data = …`), so each range of addresses has the count of its last write.

    Attributes:
        count: the number of writes.
    """

    count = 0
    _writes: dict[tuple[int, int], int] | None = None  # (start, end): the count of the last write to it
    _last: weakref.ref | None = None  # the array written last, whose range is _range
    _range = (0, 0)

    def bump(self, raw: RawArray) -> None:
        """Counts a write to `raw`."""
        self.count += 1
        if self._last is None or self._last() is not raw:
            self._range, self._last = extent(raw), weakref.ref(raw)
            writes = self._writes or {}
            if len(writes) == MAX_RANGES:  # one range around all of them: rather an error too many
                starts, ends = zip(*writes, strict=True)
                writes = {(min(starts), max(ends)): self.count - 1}
            self._writes = writes
        self._writes[self._range] = self.count

    def written_since(self, count: int) -> list[tuple[int, int]]:
        """Returns the ranges of addresses, (start, end), that were written after this count."""
        return [memory for memory, last in (self._writes or {}).items() if last > count]


class Node:
    """One operation of the forward pass, and its vjp.

    name:    the op.
    parents: the node of each positional input; None where no gradient is needed; () for a leaf.
    vjp:     from the gradient of the output to those of the inputs (see `op`); None once it is freed.
    shape, dtype, device: of the output, and so of its gradient; shape is None for several outputs.
    saved:   (version, count) of each input, None for an input that is no tensor, then of each output: the vjp
             may need their memory unchanged.
    tensor:  weak reference to the Tensor that this node made, or that is this leaf.
    retain:  keep the gradient in that tensor's `.grad`.
    hooks:   called with the complete gradient; may return another.
    recompute: how to run the forward of this node again, for gradients of gradients.
    trace:   the call site in the user's program; recorded only during anomaly detection.
    instruction: of the forward pass; set only while a stream records (see `mytorch.stream`).
    """

    __slots__ = (
        "name", "parents", "vjp", "shape", "dtype", "device", "saved", "tensor", "retain", "hooks",
        "recompute", "trace", "instruction", "__weakref__",
    )

    def __init__(self, name, parents, vjp, shape, dtype, device=CPU, saved=(), recompute=None):
        self.name: str = name
        self.parents: tuple[Node | None, ...] = parents
        self.vjp: Vjp | Deferred = vjp
        self.shape: tuple[int, ...] | None = shape
        self.dtype: np.dtype = dtype
        self.device: device = device
        self.saved: Sequence[tuple[Version, int] | None] = saved
        self.recompute: Recompute | None = recompute
        self.tensor: weakref.ref | None = None
        self.retain = False
        self.hooks: dict[int, Callable] | None = None
        self.trace: str | None = None

    def free(self) -> None:
        """Frees the saved activations; another backward pass through this node raises."""
        self.vjp = self.recompute = None
        self.saved = ()

    def follow(self, raw: RawArray) -> None:
        """Makes the gradient of a leaf like the array that its tensor holds now; does nothing elsewhere."""
        if not self.parents:
            self.shape, self.dtype, self.device = raw.shape, raw.dtype, device_of(raw)

    def __repr__(self) -> str:
        return f"<{self.name} {self.shape}>"


def shown_name(name: str) -> str:
    """Returns the name of an op without the underscores of names that aren't public.

    >>> from mytorch.core.graph import shown_name
    >>> shown_name("__setitem__"), shown_name("_sort"), shown_name("mul_")
    ('setitem', 'sort', 'mul_')
    """
    return name.strip("_") if name.startswith("__") else name.lstrip("_")


class Recompute(NamedTuple):
    """The call that made a node, without the tensors that other nodes can recompute.

    call:     the op, a function of Tensors; None if `args` holds the raw result itself.
    args:     its positional arguments; None in place of a tensor that comes from the parent at this position.
    kwargs:   its keyword arguments.
    versions: (version, count) of each argument that is a tensor at the time of the call; may be longer.
    """

    call: Callable | None
    args: tuple
    kwargs: dict
    versions: Sequence[tuple[Version, int] | None]


# Each op makes one: without a call of Python's `__new__`.
new_recompute: Callable[[tuple], Recompute] = functools.partial(tuple.__new__, Recompute)


class Deferred:
    """In place of a vjp whose activations were freed; `recover` computes them again (see `checkpoint`)."""

    __slots__ = ("recover", "__weakref__")

    def __init__(self, recover: Callable[[], None]):
        self.recover = recover


class OutputGrads(dict):
    """The gradients of a node with several outputs, by the output's index, while they accumulate."""

    def __add__(self, other: OutputGrads) -> OutputGrads:
        return OutputGrads({**self, **other})

    __iadd__ = __add__


class View:
    """The base of a tensor that is a view, and the ops that lead from the base to it.

    base:   the tensor that owns the memory (itself never a view); after `x.t_()`, which makes `x` a view of
            what it was, a tensor of the former shape.
    replay: the view ops, outermost last, as (op, args, kwargs).
    origin: the base's node when this view was made; if the base has another one now, it was written since.
    """

    __slots__ = ("_base", "replay", "origin", "multiple")

    def __init__(self, base: object, replay: tuple, multiple: bool = False):
        self._base, self.replay, self.origin = base, replay, base._node
        self.multiple = multiple  # one of several outputs of an op: in-place writes under autograd raise

    @property
    def base(self) -> Any:
        base = self._base
        return base if base._view is None else base._view.base


def replay_views(replay: tuple, x: object) -> Any:
    """Applies a chain of view ops (`View.replay`) to another tensor of the base's shape."""
    with DisableTorchFunction():
        for op, args, kwargs in replay:
            x = op(x, *args, **kwargs)
    return x


def shares_memory(a: RawArray, b: RawArray) -> bool:
    """Returns whether `a` and `b` are views of one array; by the arrays' owners, so that size 0 counts."""
    return a is b or owner_of(a) is owner_of(b)


def owner_of(a: RawArray) -> RawArray:
    """Returns the array that owns the memory of a view; an array that isn't a view itself."""
    base = getattr(a, "base", None)
    while base is not None:
        a, base = base, getattr(base, "base", None)  # strided windows lie on a stand-in for their array
    return a
