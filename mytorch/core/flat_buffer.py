"""
FlatBuffer: many parameters in one vector.

A model has hundreds of parameters, and updating them one by one takes thousands of small operations. In a
FlatBuffer their values, their gradients and an optimizer's moments each lie end to end in one long vector.
`p.data`, `p.grad` and the tensors in `optimizer.state[p]` are views of these vectors, so nothing changes for
code that looks at a single parameter, and an update, a norm, a cast or an all-reduce is one pass over memory.

    data     | weight | bias | weight | …
    grad     |   …                          backward writes new gradients here (`Tensor.grad_slot`)
    exp_avg  |   …

Each parameter begins at a multiple of 64 bytes. The padding between them is zero, and updates keep it zero.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from ..backends.device import CPU, RawArray, array_module, device, device_of, on
from .array import Array, wrap
from .tensor import Tensor, increment_version, raw_of

ALIGNMENT = 64  # bytes: a cache line, and at least the widest load on either device

Span = tuple[int, int]  # (start, stop) in elements


class GradSlot:
    """A parameter's section of a gradient vector: `Tensor.grad_slot`, where backward writes a new gradient.

    Attributes:
        raw: the section, in the parameter's shape.
        vector: the whole gradient vector.
        span: the section's (start, stop) in it, with the zero padding that follows the parameter.
    """

    __slots__ = ("raw", "vector", "span", "_last")

    def __init__(self, raw: RawArray, vector: RawArray, span: Span):
        self.raw, self.vector, self.span = raw, vector, span
        self._last: weakref.ref[Array] | None = None

    def reserve(self) -> RawArray:
        """Returns the section, to be overwritten; a gradient that is still referenced moves to a copy."""
        last = self._last and self._last()
        if last is not None and last._array is self.raw:
            last._array = self.raw.copy()
        return self.raw

    def take(self, grad: RawArray) -> Array:
        """Returns the gradient as an Array in the section; copies it there unless it was computed there."""
        if grad is not self.raw:
            self.reserve()[...] = grad
        return self.view()

    def view(self) -> Array:
        """Returns the section's content as a gradient."""
        view = Array.__new__(Array)  # as `wrap` does, without a call: each gradient of each step comes here
        view._array = self.raw
        self._last = weakref.ref(view)
        return view

    def fits(self, data: RawArray) -> bool:
        """Returns whether gradients of such data may lie here."""
        alike = data.shape == self.raw.shape and data.dtype == self.raw.dtype
        return alike and device_of(data) is device_of(self.raw)

    def holds(self, grad: Array | None) -> bool:
        """Returns whether this gradient is the one in the section."""
        return grad is not None and grad._array is self.raw

    def bind(self, p: Tensor) -> None:
        """Moves the gradient of `p`, if it has one elsewhere, into the section."""
        grad = p.grad
        if grad is not None and grad._array is not self.raw:
            p.grad = self.take(raw_of(grad, device_of(self.raw)))


class FlatBuffer:
    """Parameters of one group (see `group_of`), whose values and gradients are views of one vector each.

    Args:
        params: their values and gradients move into the vectors.
        spans: the layout, to have that of another buffer; by default they lie end to end, aligned.
        values: False leaves the values where they are, and moves the gradients only.

    Attributes:
        spans: (start, stop) of each parameter in elements, with the padding that follows it.
        size: the length of the vectors.
        data, grad: the vectors, raw 1-D arrays; `data` is None without values.
        grad_slots: the parameters' sections of `grad`.
        moments: further vectors by name (see `add_moments`).

    Raises:
        ValueError: two parameters share memory.
    """

    def __init__(self, params: Sequence[Tensor], spans: Sequence[Span] | None = None, values: bool = True):
        self.params = tuple(params)
        self.dtype, self.device = params[0].dtype, params[0].device
        self.spans = aligned_spans([p.data.size for p in params], self.dtype) if spans is None else spans
        self.size = self.spans[-1][1]
        self.data: RawArray | None = None
        self.moments: dict[str, RawArray] = {}
        self._data_views: list[Array] = []
        with on(self.device):
            if values:
                self._bind_values()
            self.grad = self.zeros()
            self.grad_slots = [
                GradSlot(raw, self.grad, span)
                for raw, span in zip(self.views(self.grad), self.spans, strict=True)
            ]
            for p, slot in zip(self.params, self.grad_slots, strict=True):
                p.grad_slot = slot
                slot.bind(p)

    def _bind_values(self) -> None:
        _check_distinct(self.params)
        self.data = self.zeros()
        self._data_views = [wrap(raw) for raw in self.views(self.data)]
        for p, view in zip(self.params, self._data_views, strict=True):
            raw_of(view)[...] = raw_of(p)
            p.data = view

    def is_current(self) -> bool:
        """Returns whether values and gradient slots are still bound here; anyone may assign `p.data`."""
        slots = map(operator.attrgetter("grad_slot"), self.params)
        data = map(operator.attrgetter("data"), self.params)
        return all(map(operator.is_, slots, self.grad_slots)) and (
            self.data is None or all(map(operator.is_, data, self._data_views))
        )

    # Layout.

    def zeros(self, dtype: np.dtype | None = None) -> RawArray:
        """Returns a new vector of this layout, of the parameters' dtype by default."""
        return aligned_zeros(self.size, self.dtype if dtype is None else dtype, self.device)

    def add_moments(self, names: Iterable[str], dtype: np.dtype) -> None:
        """Adds a vector of zeros to `moments` for each name."""
        with on(self.device):
            self.moments.update({name: self.zeros(dtype) for name in names})

    def views(self, vector: RawArray) -> list[RawArray]:
        """Returns the parameters' sections of a vector of this layout, in the parameters' shapes."""
        return [
            vector[start : start + p.data.size].reshape(p.data.shape)
            for p, (start, _) in zip(self.params, self.spans, strict=True)
        ]

    def section(self, first: int, last: int) -> slice:
        """Returns where params[first:last] lie in the vectors."""
        return slice(self.spans[first][0], self.spans[last - 1][1])

    def sections(self, selected: Iterable[bool]) -> Iterator[slice]:
        """Yields the longest sections of which every parameter is selected; none is empty."""
        for first, last in ranges([is_selected or None for is_selected in selected]):
            section = self.section(first, last)
            if section.start < section.stop:
                yield section

    # Gradients and versions.

    def bind_grads(self) -> None:
        """Moves gradients that lie elsewhere into the vector: each `.grad` becomes a view of it."""
        for p, slot in zip(self.params, self.grad_slots, strict=True):
            slot.bind(p)

    def collect_grads(self) -> None:
        """Copies gradients that lie elsewhere into the vector; each `.grad` stays what it is."""
        for grad, slot in self._foreign_grads():
            slot.raw[...] = raw_of(grad)

    def return_grads(self) -> None:
        """Copies gradients that lie elsewhere back, after the vector has changed: what was unscaled, say."""
        for grad, slot in self._foreign_grads():
            raw_of(grad)[...] = slot.raw

    def _foreign_grads(self) -> list[tuple[Array, GradSlot]]:
        found = []
        for p, slot in zip(self.params, self.grad_slots, strict=True):
            if (grad := p.grad) is not None and grad._array is not slot.raw:
                found.append((grad, slot))
        return found

    def zero_grad(self) -> None:
        """Fills the gradients with zeros; those that are None stay None."""
        if all([slot.holds(p.grad) for p, slot in zip(self.params, self.grad_slots, strict=True)]):
            self.grad.fill(0)
        else:
            for p in self.params:
                if p.grad is not None:
                    p.grad.zero_()

    def increment_versions(self, first: int = 0, last: int | None = None) -> None:
        """Counts a write to the values of params[first:last]: a graph that needs the old ones must notice."""
        for p in self.params[first:last]:
            increment_version(p)


def bind_gradients(params: Iterable[Tensor]) -> None:
    """Lays the gradients of parameters that have no slot yet end to end."""
    for alike in grouped(p for p in params if p.grad_slot is None):
        FlatBuffer(alike, values=False)


def group_of(raw: RawArray) -> tuple[Hashable, ...]:
    """Returns what all arrays of a vector have in common: dtype, device, kind, and what the kind adds."""
    target = device_of(raw)
    return raw.dtype, target, target.kind, target.kind.group(raw)


def grouped(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Returns the tensors that can lie in one vector, for each vector; a tensor that is given twice, once."""
    groups: dict[tuple[Hashable, ...], list[Tensor]] = {}
    for t in dict.fromkeys(tensors):
        groups.setdefault(group_of(raw_of(t)), []).append(t)
    return list(groups.values())


def ranges(keys: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Yields the longest ranges (first, last + 1) of equal keys; those that are None are left out."""
    first = 0
    for i in range(1, len(keys) + 1):
        if i == len(keys) or keys[i] != keys[first]:
            if keys[first] is not None:
                yield first, i
            first = i


def aligned_spans(sizes: Iterable[int], dtype: np.dtype) -> list[Span]:
    """Returns (start, stop) of arrays end to end, each padded to a multiple of ALIGNMENT bytes."""
    spans, start = [], 0
    for size in sizes:
        stop = start + -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT // dtype.itemsize
        spans.append((start, stop))
        start = stop
    return spans


def aligned_zeros(size: int, dtype: np.dtype, target: device) -> RawArray:
    """Returns a vector of zeros that begins at a multiple of ALIGNMENT bytes."""
    if target is not CPU:
        return array_module(target).zeros(size, dtype)  # CuPy aligns by itself
    raw = np.zeros(size + ALIGNMENT // dtype.itemsize, dtype)
    start = -raw.ctypes.data % ALIGNMENT // dtype.itemsize
    return raw[start : start + size]


def _check_distinct(params: Sequence[Tensor]) -> None:
    seen: dict[int, int] = {}
    for i, p in enumerate(params):
        other = seen.setdefault(p.data_ptr(), i) if p.data.size else i
        if other != i:
            raise ValueError(
                f"parameters {other} and {i} (shapes {params[other].data.shape} and {p.data.shape}) are "
                "different tensors in the same memory; to tie weights, use one Parameter in both places"
            )
