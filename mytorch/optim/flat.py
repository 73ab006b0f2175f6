"""
Flat parameters: many tensors laid end to end in one vector.

A model has hundreds of parameters, and updating them one by one means thousands of small operations. Here
the values, the gradients and the optimizer's state of many parameters each lie in one long vector. `p.data`,
`p.grad` and the tensors in `optimizer.state[p]` are views of it, so nothing changes for whoever looks at a
parameter, and an update, a norm or an all-reduce is one pass over memory, whatever the model.

    data     | weight | bias | weight | …
    grad     |   …                          a new gradient is written here (`Tensor._slot`)
    exp_avg  |   …

Each parameter begins at a multiple of 64 bytes. The gaps between them hold zeros, which updates leave zero.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._array import Array, wrap
from ..device import CPU, cupy, device, on
from ..tensor import Tensor, from_raw, raw_of

ALIGN = 64  # bytes: a cache line, and more than the widest load on either device asks for
CHUNK = 1 << 16  # elements to work on at a time: with gradient, state and scratch they stay in the cache
CHUNK_CUDA = 1 << 24  # a GPU wants long vectors; this only bounds the scratch memory


class Chunk:
    """A piece of the vectors, for an update to work on in place.

    Attributes:
        data, grad: parameters and gradients, raw 1-D arrays; float32 for half-precision parameters.
        state: the optimizer's vectors by name.
        scratch: as long as `data`, its content is nobody's.
    """

    __slots__ = ("data", "grad", "state", "scratch", "_spare")

    def __init__(self, data: Any, grad: Any, state: dict[str, Any], scratch: Any, spare: Any):
        self.data, self.grad, self.state, self.scratch, self._spare = data, grad, state, scratch, spare

    def penalized_grad(self, maximize: bool, weight_decay: float) -> Any:
        """grad + weight_decay * data, the gradient of an L2-penalized loss; with -grad when maximizing."""
        g = self._spare
        if weight_decay != 0:
            np.multiply(self.data, weight_decay, out=g)
            return np.subtract(g, self.grad, out=g) if maximize else np.add(g, self.grad, out=g)
        return np.negative(self.grad, out=g) if maximize else self.grad


class Slot:
    """A parameter's place in the gradient vector: `Tensor._slot`, where backward puts a new gradient.

    Attributes:
        raw: the place, in the parameter's shape.
    """

    __slots__ = ("raw", "_given")

    def __init__(self, raw: Any):
        self.raw, self._given = raw, None

    def take(self, grad: Any) -> Array:
        """Write a gradient here and return it; whoever kept the Array given before keeps its values."""
        kept = self._given and self._given()
        if kept is not None and kept._array is self.raw:
            kept._array = self.raw.copy()
        self.raw[...] = grad
        given = wrap(self.raw)
        self._given = weakref.ref(given)
        return given

    def holds(self, grad: Array | None) -> bool:
        """Is this gradient the one that lies here?"""
        return grad is not None and grad._array is self.raw


class Flat:
    """Parameters of one dtype on one device, end to end, with the state that an optimizer keeps for them.

    Args:
        params: their values and gradients move into the vectors.
        state: the optimizer's state by parameter: what is there moves, too.
        names: the tensors that a parameter's state holds, each shaped as the parameter.
        counted: whether the state holds the number of updates as well, in "step".

    Attributes:
        spans: where each parameter begins and ends (with the gap after it), in elements.
        data, grad: the vectors, raw 1-D arrays.
        state: the vectors of the state by name; float32 for half-precision parameters.
        steps: how many updates each parameter has had (float32 on the CPU, as PyTorch counts).

    Raises:
        ValueError: two parameters are the same memory, or a state doesn't fit its parameter.
    """

    def __init__(
        self, params: Sequence[Tensor], state: dict[Tensor, dict], names: Sequence[str], counted: bool
    ):
        _check_apart(params)
        self.params = tuple(params)
        self.dtype, self.device = params[0].dtype, params[0].device
        self.math_dtype = np.dtype(np.float32) if self.dtype.itemsize < 4 else self.dtype
        self.spans = _spans([p.data.size for p in params], self.dtype.itemsize)
        self.size = self.spans[-1][1]
        self.counted = counted
        with on(self.device):
            self._lay_out_params()
            self._lay_out_state(state, names)
            self._chunk = min(self.size, CHUNK if self.device is CPU else CHUNK_CUDA)
            buffers = 2 if self.math_dtype == self.dtype else 4
            self._buffers = [_zeros(self._chunk, self.math_dtype, self.device) for _ in range(buffers)]

    def _lay_out_params(self) -> None:
        self.data, self.grad = (_zeros(self.size, self.dtype, self.device) for _ in range(2))
        self._data_views = [wrap(view) for view in self._views(self.data)]
        self._slots = [Slot(view) for view in self._views(self.grad)]
        for p, view, slot in zip(self.params, self._data_views, self._slots, strict=True):
            view._array[...] = p.data._array
            p.data, p._slot = view, slot
            if p._grad is not None:
                p._grad = slot.take(raw_of(p._grad, self.device))

    def _lay_out_state(self, state: dict[Tensor, dict], names: Sequence[str]) -> None:
        self.steps = np.zeros(len(self.params), np.float32)
        self.state = {name: _zeros(self.size, self.math_dtype, self.device) for name in names}
        self._state_views = {
            name: [from_raw(v) for v in self._views(vector)] for name, vector in self.state.items()
        }
        if self.counted:
            self._state_views["step"] = [
                from_raw(self.steps[i : i + 1].reshape(())) for i in range(len(self.params))
            ]
        for i, p in enumerate(self.params):
            entry = state.get(p, {})
            found = {name: entry[name] for name in self._state_views if entry.get(name) is not None}
            if found:
                self._take_state(i, found)
                self._show_state(i, entry)

    def _take_state(self, i: int, found: dict[str, Any]) -> None:
        if self.counted and "step" not in found:
            raise ValueError(f"the state of parameter {i} has {', '.join(found)}, but no 'step'")
        self.steps[i] = 1
        for name, value in found.items():
            into = self._state_views[name][i]
            raw = raw_of(value, into.device)
            if raw.size != into.data.size or (name != "step" and raw.shape != into.shape):
                raise ValueError(
                    f"the state of parameter {i} doesn't fit: {name} has shape {raw.shape}, "
                    f"expected {into.data.shape}"
                )
            into.data._array[...] = raw.reshape(into.shape)

    def _show_state(self, i: int, entry: dict) -> None:
        for name, views in self._state_views.items():
            entry[name] = views[i]

    def _views(self, vector: Any) -> list:
        return [
            vector[start : start + p.data.size].reshape(p.data.shape)
            for p, (start, _) in zip(self.params, self.spans, strict=True)
        ]

    def is_current(self, state: dict[Tensor, dict], names: Sequence[str]) -> bool:
        """Is everything still where it was laid? Anyone may give a parameter or its state another tensor."""
        if tuple(self.state) != tuple(names):
            return False
        if not (
            _same([p.data for p in self.params], self._data_views)
            and _same([p._slot for p in self.params], self._slots)
        ):
            return False
        entries = [state.get(p, {}) for p in self.params]
        begun = (self.steps > 0).tolist()
        for name, views in self._state_views.items():
            expected = [view if has else None for view, has in zip(views, begun, strict=True)]
            if not _same([entry.get(name) for entry in entries], expected):
                return False
        return True

    # An update.

    def collect_grads(self) -> None:
        """Copy the gradients that somebody put in `p.grad` into the vector; backward puts its own there."""
        for p, slot in zip(self.params, self._slots, strict=True):
            if p._grad is not None and not slot.holds(p._grad):
                slot.raw[...] = p._grad._array

    def zero_grad(self) -> None:
        """Fill the gradients with zeros."""
        if all([slot.holds(p._grad) for p, slot in zip(self.params, self._slots, strict=True)]):
            self.grad.fill(0)
        else:
            for p in self.params:
                if p._grad is not None:
                    p._grad.zero_()

    def runs(self) -> Iterator[tuple[int, int]]:
        """The longest ranges (first, last + 1) of parameters that have a gradient and as many updates."""
        steps = (self.steps if self.counted else self.steps > 0).tolist()
        keys = [None if p._grad is None else n for p, n in zip(self.params, steps, strict=True)]
        first = 0
        for i in range(1, len(keys) + 1):
            if i == len(keys) or keys[i] != keys[first]:
                if keys[first] is not None:
                    yield first, i
                first = i

    def begin_update(self, first: int, last: int, state: dict[Tensor, dict]) -> int:
        """Count an update of params[first:last] and say which it is: 1 for the first one (and any number
        above 1 for all others, if not `counted`)."""
        params = self.params[first:last]
        if self.steps[first] == 0 and self._state_views:
            for i, p in enumerate(params, first):
                self._show_state(i, state.setdefault(p, {}))
        self.steps[first:last] += 1
        for p in params:
            p._version.count += 1  # a graph that needs the old values must notice
        return int(self.steps[first])

    def chunks(self, first: int, last: int) -> Iterator[Chunk]:
        """The vectors of params[first:last], a cacheful at a time, to be written in place."""
        begin, end = self.spans[first][0], self.spans[last - 1][1]
        for start in range(begin, end, self._chunk or 1):
            piece = slice(start, min(start + self._chunk, end))
            data, grad = self.data[piece], self.grad[piece]
            state = {name: vector[piece] for name, vector in self.state.items()}
            scratch, spare, *wide = (buffer[: data.size] for buffer in self._buffers)
            if wide:
                wide_data, wide_grad = wide
                wide_data[...], wide_grad[...] = data, grad
                yield Chunk(wide_data, wide_grad, state, scratch, spare)
                data[...] = wide_data
            else:
                yield Chunk(data, grad, state, scratch, spare)


class FlatGroup:
    """The parameters of a group, in a `Flat` for each dtype and device; those without gradient stay out."""

    def __init__(
        self, params: Sequence[Tensor], state: dict[Tensor, dict], names: Sequence[str], counted: bool
    ):
        self.params = tuple(params)
        self.frozen = [p for p in params if not p.requires_grad and p._grad is None]
        trained: dict[tuple[np.dtype, device], list[Tensor]] = {}
        for p in dict.fromkeys(params):
            if p.requires_grad or p._grad is not None:
                trained.setdefault((p.dtype, p.device), []).append(p)
        self.flats = [Flat(some, state, names, counted) for some in trained.values()]

    def is_current(self, params: Sequence[Tensor], state: dict[Tensor, dict], names: Sequence[str]) -> bool:
        return (
            _same(params, self.params)
            and all(p._grad is None for p in self.frozen)
            and all(flat.is_current(state, names) for flat in self.flats)
        )


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Are they the same objects? (Equality of tensors would be a tensor.)"""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _spans(sizes: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """(start, stop) of arrays laid end to end, each stretched to a multiple of ALIGN bytes."""
    spans, start = [], 0
    for size in sizes:
        stop = start + -(-size * itemsize // ALIGN) * ALIGN // itemsize
        spans.append((start, stop))
        start = stop
    return spans


def _zeros(size: int, dtype: np.dtype, where: device) -> Any:
    """A vector of zeros that begins at a multiple of ALIGN bytes."""
    if where is not CPU:
        return cupy().zeros(size, dtype)  # CuPy aligns by itself
    raw = np.zeros(size + ALIGN // dtype.itemsize, dtype)
    start = -raw.ctypes.data % ALIGN // dtype.itemsize
    return raw[start : start + size]


def _check_apart(params: Sequence[Tensor]) -> None:
    seen: dict[int, int] = {}
    for i, p in enumerate(params):
        other = seen.setdefault(p.data_ptr(), i) if p.data.size else i
        if other != i:
            raise ValueError(
                f"parameters {other} and {i} (shapes {params[other].data.shape} and {p.data.shape}) are "
                "different tensors in the same memory; to tie weights, use one Parameter in both places"
            )
