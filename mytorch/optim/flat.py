"""
Flat parameters: many tensors laid end to end in one vector.

A model has hundreds of parameters, and updating them one by one means thousands of small operations. Here
the values, the gradients and the optimizer's state of many parameters each lie in one long vector. `p.data`,
`p.grad` and the tensors in `optimizer.state[p]` are views of it, so nothing changes for whoever looks at a
parameter, and an update, a norm or an all-reduce is one pass over memory, whatever the model.

    data     | weight | bias | weight | …
    grad     |   …                          a new gradient is written here (`Tensor.grad_slot`)
    exp_avg  |   …

Each parameter begins at a multiple of 64 bytes. The gaps between them hold zeros, which updates leave zero.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..backends import tune
from ..backends.device import CPU, array_module, cupy, device, on
from ..core.array import wrap
from ..core.tensor import Tensor, from_raw, increment_version, raw_of
from . import fused
from .chunk import Chunk
from .slot import Slot

ALIGN = 64  # bytes: a cache line, and more than the widest load on either device asks for
CHUNK = 1 << 16  # elements to work on at a time: with gradient, state and scratch they stay in the cache
LARGE = 1 << 26  # bytes: a model that leaves much behind when it is made
CHUNK_CUDA = 1 << 24  # a GPU wants long vectors; this only bounds the scratch memory


class Flat:
    """Parameters of one dtype on one device, end to end, with the state that an optimizer keeps for them.

    Args:
        params: their values and gradients move into the vectors.
        state: the optimizer's state by parameter: what is there moves, too.
        names: the tensors that a parameter's state holds, each shaped as the parameter.
        numbers: the numbers that it holds, with what they begin with; "step" counts the updates.
        by_parameter: updates want each parameter by itself, in its shape.
        kernel: the file of a fused update (see `fused`), or None. If it can be had, and on a GPU, the numbers
            are there, too: the GPU itself knows whether an update was skipped.

    Attributes:
        spans: where each parameter begins and ends (with the gap after it), in elements.
        data, grad: the vectors, raw 1-D arrays.
        state: the vectors of the state by name; float32 for half-precision parameters.
        numbers: the numbers of all parameters by name, vectors of float32; on the CPU, but see `kernel`.

    Raises:
        ValueError: two parameters are the same memory, or a state doesn't fit its parameter.
    """

    def __init__(
        self, params: Sequence[Tensor], state: dict[Tensor, dict], names: Sequence[str],
        numbers: dict[str, float], by_parameter: bool = False, kernel: str | None = None,
    ):  # fmt: skip
        _check_apart(params)
        self.params = tuple(params)
        self.dtype, self.device = params[0].dtype, params[0].device
        self.math_dtype = np.dtype(np.float32) if self.dtype.itemsize < 4 else self.dtype
        self.spans = _spans([p.data.size for p in params], self.dtype.itemsize)
        self.size = self.spans[-1][1]
        self.by_parameter = by_parameter
        kernel = None if self.device is CPU or not numbers else kernel
        self.counts_there = not fused.why_not(kernel, self.dtype, self.device)
        with on(self.device):
            self._lay_out_params()
            self._lay_out_state(state, names, numbers)
            self._chunk = min(self.size, CHUNK if self.device is CPU else CHUNK_CUDA)
            if by_parameter:
                self._chunk = max(p.data.size for p in params)
            buffers = 2 if self.math_dtype == self.dtype else 4
            self._buffers = [_zeros(self._chunk, self.math_dtype, self.device) for _ in range(buffers)]

    def _lay_out_params(self) -> None:
        self.data, self.grad = (_zeros(self.size, self.dtype, self.device) for _ in range(2))
        self._data_views = [wrap(view) for view in self._views(self.data)]
        self._slots = [
            Slot(view, self.grad, span) for view, span in zip(self._views(self.grad), self.spans, strict=True)
        ]
        for p, view, slot in zip(self.params, self._data_views, self._slots, strict=True):
            view._array[...] = p.data._array
            p.data, p.grad_slot = view, slot
            if p._grad is not None:
                p._grad = slot.take(raw_of(p._grad, self.device))

    def _lay_out_state(
        self, state: dict[Tensor, dict], names: Sequence[str], numbers: dict[str, float]
    ) -> None:
        count, module = len(self.params), array_module(self.device if self.counts_there else CPU)
        self.numbers = {name: module.full(count, first, np.float32) for name, first in numbers.items()}
        self.state = {name: _zeros(self.size, self.math_dtype, self.device) for name in names}
        self._state_views = {
            name: [from_raw(vector[i : i + 1].reshape(())) for i in range(count)]
            for name, vector in self.numbers.items()
        }
        for name, vector in self.state.items():
            self._state_views[name] = [from_raw(view) for view in self._views(vector)]
        self._begun = [False] * count  # whose state is in the optimizer's dict
        for i, p in enumerate(self.params):
            entry = state.get(p, {})
            found = {name: entry[name] for name in self._state_views if entry.get(name) is not None}
            if found:
                self._take_state(i, found)
                self._show_state(i, entry)
        self._keys, self._updates = self._equal_numbers(), 0

    def _take_state(self, i: int, found: dict[str, Any]) -> None:
        for name in self.numbers:
            if name not in found:
                raise ValueError(f"the state of parameter {i} has {', '.join(found)}, but no '{name}'")
        for name, value in found.items():
            into = self._state_views[name][i]
            raw = raw_of(value, into.device)
            if raw.size != into.data.size or (name not in self.numbers and raw.shape != into.shape):
                raise ValueError(
                    f"the state of parameter {i} doesn't fit: {name} has shape {raw.shape}, "
                    f"expected {into.data.shape}"
                )
            into.data._array[...] = raw.reshape(into.shape)

    def _show_state(self, i: int, entry: dict) -> None:
        self._begun[i] = True
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
            and _same([p.grad_slot for p in self.params], self._slots)
        ):
            return False
        entries = [state.get(p, {}) for p in self.params]
        for name, views in self._state_views.items():
            expected = [view if has else None for view, has in zip(views, self._begun, strict=True)]
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

    def return_grads(self) -> None:
        """Copy the gradients that lie elsewhere back: an update has unscaled those in the vector."""
        for p, slot in zip(self.params, self._slots, strict=True):
            if p._grad is not None and not slot.holds(p._grad):
                p._grad._array[...] = slot.raw

    def runs(self) -> Iterator[tuple[int, int]]:
        """The longest ranges (first, last + 1) of parameters that have a gradient and equal numbers."""
        keys = self._keys if self.counts_there else self._equal_numbers()
        keys = [None if p._grad is None else key for p, key in zip(self.params, keys, strict=True)]
        first = 0
        for i in range(1, len(keys) + 1):
            if i == len(keys) or keys[i] != keys[first]:
                if keys[first] is not None:
                    yield first, i
                first = i

    def _equal_numbers(self) -> list:
        """For each parameter something that is equal if all its numbers are."""
        numbers = zip(*(vector.tolist() for vector in self.numbers.values()), strict=True)
        return list(numbers) if self.numbers else list(self._begun)

    def has_begun(self) -> bool:
        """Has every parameter with a gradient been updated before?"""
        return all([begun or p._grad is None for p, begun in zip(self.params, self._begun, strict=True)])

    def begin_update(
        self, first: int, last: int, state: dict[Tensor, dict], count: Any = 1
    ) -> tuple[Any, dict[str, Any]]:
        """Count an update of params[first:last].

        Args:
            count: 0 if the update will be skipped, which only the GPU may know.

        Returns:
            Which one it is: 1 for the first one (and any number above 1 for all others, without a "step"); a
            vector of one number if it is counted on the GPU.
            The numbers of these parameters by name, vectors to be written in place.
        """
        step = 2 if self._begun[first] else 1
        if step == 1 and self.device is CPU and self.data.nbytes >= LARGE:
            tune.release_freed_memory()  # from here on the steps reuse what they free
        for i, p in enumerate(self.params[first:last], first):
            if self._state_views and not self._begun[i]:
                self._show_state(i, state.setdefault(p, {}))
            increment_version(p)  # a graph that needs the old values must notice
        numbers = {name: vector[first:last] for name, vector in self.numbers.items()}
        if "step" in numbers:
            numbers["step"] += count
            step = numbers["step"][:1] if self.counts_there else int(numbers["step"][0])
        if self.counts_there:  # what was equal stays equal, whatever the count
            self._updates += 1
            self._keys[first:last] = [self._updates] * (last - first)
        return step, numbers

    def whole(self, first: int, last: int) -> tuple[Any, Any, dict[str, Any]]:
        """The vectors of params[first:last], to be written in place: data, gradients, state by name."""
        piece = slice(self.spans[first][0], self.spans[last - 1][1])
        return self.data[piece], self.grad[piece], {n: vector[piece] for n, vector in self.state.items()}

    def chunks(self, first: int, last: int, unscale: float = 1.0, clip: float = 1.0) -> Iterator[Chunk]:
        """The vectors of params[first:last], a cacheful at a time, to be written in place.

        Args:
            unscale: the gradients are multiplied by it, and stay so.
            clip: what the gradients in the chunks are then multiplied by.
        """
        for piece, shape in self._pieces(first, last):
            data, grad = self.data[piece].reshape(shape), self.grad[piece].reshape(shape)
            state = {name: vector[piece].reshape(shape) for name, vector in self.state.items()}
            scratch, spare, *wide = (buffer[: data.size].reshape(shape) for buffer in self._buffers)
            if unscale != 1:
                np.multiply(grad, self.math_dtype.type(unscale), out=grad, casting="same_kind")
            if wide:
                wide_data, wide_grad = wide
                wide_data[...], wide_grad[...] = data, grad
                wide_grad *= clip
                yield Chunk(wide_data, wide_grad, state, scratch, spare)
                data[...] = wide_data
            else:
                yield Chunk(data, grad if clip == 1 else grad * clip, state, scratch, spare)

    def _pieces(self, first: int, last: int) -> Iterator[tuple[slice, tuple[int, ...]]]:
        """Where the chunks lie, and the shape that an update sees them in."""
        if self.by_parameter:
            for p, (start, _) in zip(self.params[first:last], self.spans[first:last], strict=True):
                yield slice(start, start + p.data.size), p.data.shape
            return
        begin, end = self.spans[first][0], self.spans[last - 1][1]
        for start in range(begin, end, self._chunk or 1):
            stop = min(start + self._chunk, end)
            yield slice(start, stop), (stop - start,)


class FlatGroup:
    """The parameters of a group, in a `Flat` for each dtype and device; those without gradient stay out."""

    def __init__(
        self, params: Sequence[Tensor], state: dict[Tensor, dict], names: Sequence[str],
        numbers: dict[str, float], by_parameter: bool = False, kernel: str | None = None,
    ):  # fmt: skip
        self.params, self.kernel = tuple(params), kernel
        self.frozen = [p for p in params if not p.requires_grad and p._grad is None]
        trained: dict[tuple[np.dtype, device], list[Tensor]] = {}
        for p in dict.fromkeys(params):
            if p.requires_grad or p._grad is not None:
                trained.setdefault((p.dtype, p.device), []).append(p)
        self.flats = [Flat(some, state, names, numbers, by_parameter, kernel) for some in trained.values()]

    def is_current(
        self, params: Sequence[Tensor], state: dict[Tensor, dict], names: Sequence[str], kernel: str | None
    ) -> bool:
        return (
            kernel == self.kernel
            and _same(params, self.params)
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
