"""FlatState: what an optimizer keeps for the parameters of a FlatBuffer, and the order of an update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import is_, methodcaller
from typing import Any

import numpy as np

from ..backends import tune
from ..backends.device import CPU, META, RawArray, array_module, device_of, move, on
from ..core.flat_buffer import FlatBuffer, aligned_zeros, grouped, ranges
from ..core.tensor import Tensor, from_raw, raw_of
from .update import CHUNK, CHUNK_CUDA, Chunk, why_no_kernel

_OF_OPTIONS = ("max_exp_avg_sq", "momentum_buffer", "grad_avg")  # an option that was changed adds them

State = dict[str, Any]  # of a parameter
States = dict[Tensor, State]  # by parameter: `Optimizer.state`


class FlatState:
    """An optimizer's state for the parameters of a FlatBuffer.

    Args:
        buffer: gets a vector of moments for each name.
        state: the optimizer's state by parameter; what it has for these parameters moves into the vectors.
        names: the tensors in a parameter's state, each shaped as the parameter.
        scalars: the scalars in it, with their initial values; "step" counts the updates.
        by_parameter: an update gets each parameter by itself, in its shape.
        kernel: the file of a fused update (see `update`), or None. If it is available on a GPU, the scalars
            are on the GPU, too: only the GPU knows whether an update was skipped.

    Attributes:
        scalars: vectors of float32 by name, one element for each parameter.
        counts_on_device: whether the scalars are on a GPU.

    Raises:
        ValueError: the state of a parameter doesn't fit it.
    """

    def __init__(
        self, buffer: FlatBuffer, state: States, names: Sequence[str], scalars: dict[str, float],
        by_parameter: bool = False, kernel: str | None = None,
    ):
        self.buffer, self.device, self.by_parameter = buffer, buffer.device, by_parameter
        self.math_dtype = np.dtype(np.float32) if buffer.dtype.itemsize < 4 else buffer.dtype
        self._parts = 2 if buffer.dtype.kind == "c" else 1  # real numbers in an element
        kernel = None if self.device.type != "cuda" or not scalars else kernel
        self.counts_on_device = not why_no_kernel(kernel, buffer.dtype, self.device)
        count = len(buffer.params)
        self._initialized = [False] * count
        with on(self.device):
            module = array_module(self.device if self.counts_on_device else CPU)
            self.scalars = {name: module.full(count, start, np.float32) for name, start in scalars.items()}
            buffer.add_moments(names, self.math_dtype)
            self._tensors = {
                name: [from_raw(vector[i : i + 1].reshape(())) for i in range(count)]
                for name, vector in self.scalars.items()
            }
            for name in names:
                self._tensors[name] = [from_raw(view) for view in buffer.views(buffer.moments[name])]
            self._stored = {name: [None] * count for name in self._tensors}  # what the optimizer's dict has
            self._load(state)
            self._chunk_size = min(buffer.size, CHUNK_CUDA if self.device.type == "cuda" else CHUNK)
            if by_parameter:
                self._chunk_size = max(p.data.size for p in buffer.params)
            needed = 2 if self.math_dtype == buffer.dtype else 4
            work = [aligned_zeros(self._chunk_size, self.math_dtype, self.device) for _ in range(needed)]
        self._work = [_as_reals(vector) for vector in work]
        self._data, self._grad = _as_reals(buffer.data), _as_reals(buffer.grad)
        self._moments = {name: _as_reals(vector) for name, vector in buffer.moments.items()}
        self._keys, self._updates = self._scalar_keys(), 0

    def _load(self, state: States) -> None:
        for i, p in enumerate(self.buffer.params):
            entry = state.get(p, {})
            found = {name: entry[name] for name in self._tensors if entry.get(name) is not None}
            if found:
                self._load_entry(i, found)
                self._store_entry(i, entry)

    def _load_entry(self, i: int, found: State) -> None:
        for name in self._tensors:
            if name not in found and name not in _OF_OPTIONS:
                raise ValueError(f"the state of parameter {i} has {', '.join(found)}, but no '{name}'")
        for name, value in found.items():
            tensor = self._tensors[name][i]
            raw = move(raw_of(value), device_of(raw_of(tensor)))
            if raw.size != tensor.data.size or (name not in self.scalars and raw.shape != tensor.shape):
                raise ValueError(
                    f"the state of parameter {i} doesn't fit: {name} has shape {raw.shape}, "
                    f"expected {tensor.data.shape}"
                )
            if name == "step" and raw.min() < 0:
                raise ValueError(f"the state of parameter {i} has step {raw.min()}, expected at least 0")
            raw_of(tensor)[...] = raw.reshape(tensor.data.shape)

    def _store_entry(self, i: int, entry: State) -> None:
        self._initialized[i] = True
        for name, tensors in self._tensors.items():
            entry[name] = self._stored[name][i] = tensors[i]

    def is_current(self, state: States, names: Sequence[str]) -> bool:
        """Returns whether the optimizer's state still is these views; anyone may assign other tensors."""
        if tuple(self.buffer.moments) != tuple(names):
            return False
        entries = list(map(state.get, self.buffer.params, repeat({})))
        for name, stored in self._stored.items():
            if not all(map(is_, map(methodcaller("get", name), entries), stored)):
                return False
        return True

    # An update.

    def uniform_ranges(self) -> Iterator[tuple[int, int]]:
        """Yields the longest ranges (first, last + 1) of parameters with a gradient and equal scalars."""
        keys = self._keys if self.counts_on_device else self._scalar_keys()
        return ranges([None if p.grad is None else k for p, k in zip(self.buffer.params, keys, strict=True)])

    def _scalar_keys(self) -> list[object]:
        """Returns a key for each parameter; keys are equal if all scalars are."""
        if not self.scalars:
            return list(self._initialized)
        return list(zip(*map(methodcaller("tolist"), self.scalars.values()), strict=True))

    def is_initialized(self) -> bool:
        """Returns whether every parameter with a gradient has been updated before."""
        pairs = zip(self.buffer.params, self._initialized, strict=True)
        return all([initialized or p.grad is None for p, initialized in pairs])

    def begin_update(
        self, first: int, last: int, state: States, count: int | RawArray = 1
    ) -> tuple[int | RawArray, dict[str, RawArray]]:
        """Counts an update of params[first:last].

        Args:
            count: 0 if the update will be skipped, which only the GPU may know.

        Returns:
            The number of the update: 1 for the first one (without a "step" scalar 2 for all others); a vector
            of one element if it is counted on the GPU.
            The scalars of these parameters by name, to be written in place.
        """
        buffer, step = self.buffer, 2 if self._initialized[first] else 1
        if step == 1 and self.device is CPU:
            tune.release_freed_memory(buffer.data.nbytes)  # later steps reuse what they free
        if self._tensors:
            for i, p in enumerate(buffer.params[first:last], first):
                if not self._initialized[i]:
                    self._store_entry(i, state.setdefault(p, {}))
        buffer.increment_versions(first, last)
        scalars = {name: vector[first:last] for name, vector in self.scalars.items()}
        if "step" in scalars:
            scalars["step"] += count
            step = scalars["step"][:1] if self.counts_on_device else int(scalars["step"][0])
        if self.counts_on_device:  # equal scalars stay equal, whatever the count
            self._updates += 1
            self._keys[first:last] = [self._updates] * (last - first)
        return step, scalars

    def vectors(self, first: int, last: int) -> tuple[RawArray, RawArray, dict[str, RawArray]]:
        """Returns data, gradients and moments of params[first:last], to be written in place."""
        buffer, section = self.buffer, self.buffer.section(first, last)
        moments = {name: vector[section] for name, vector in buffer.moments.items()}
        return buffer.data[section], buffer.grad[section], moments

    def chunks(self, first: int, last: int, unscale: float = 1.0, clip: float = 1.0) -> Iterator[Chunk]:
        """Yields params[first:last] in chunks that fit into the cache, to be written in place.

        Args:
            unscale: the gradients are multiplied by it, and stay so.
            clip: what the gradients in the chunks are then multiplied by.
        """
        for section, shape in self._chunk_sections(first, last):
            data, grad = self._data[section].reshape(shape), self._grad[section].reshape(shape)
            state = {name: vector[section].reshape(shape) for name, vector in self._moments.items()}
            scratch, spare, *upcast = [work[: data.size].reshape(shape) for work in self._work]
            if unscale != 1:
                np.multiply(grad, scratch.dtype.type(unscale), out=grad, casting="same_kind")
            if upcast:
                data32, grad32 = upcast
                data32[...], grad32[...] = data, grad
                grad32 *= clip
                yield Chunk(data32, grad32, state, scratch, spare)
                data[...] = data32
            else:
                yield Chunk(data, grad if clip == 1 else grad * clip, state, scratch, spare)

    def _chunk_sections(self, first: int, last: int) -> Iterator[tuple[slice, tuple[int, ...]]]:
        """Yields where the chunks lie among real numbers, and the shape in which an update sees them."""
        buffer, parts = self.buffer, self._parts
        if self.by_parameter:
            for p, (start, _) in zip(buffer.params[first:last], buffer.spans[first:last], strict=True):
                shape = p.data.shape if parts == 1 else (*p.data.shape, parts)
                yield slice(start * parts, (start + p.data.size) * parts), shape
            return
        section, step = buffer.section(first, last), self._chunk_size * parts
        starts = range(section.start * parts, section.stop * parts, step or 1)
        for start in starts[:1] if self.device is META else starts:  # there, one chunk stands for all
            stop = min(start + step, section.stop * parts)
            yield slice(start, stop), (stop - start,)


def _as_reals(vector: RawArray) -> RawArray:
    """Returns a vector itself; of a complex one the view of its real and imaginary parts."""
    return vector.view(vector.real.dtype) if vector.dtype.kind == "c" else vector


class FlatGroup:
    """The parameters of an optimizer's group, in FlatBuffers (see `core`'s `grouped`); frozen ones stay out.

    Attributes:
        buffers: the FlatBuffers.
    """

    def __init__(self, params: Sequence[Tensor]):
        self.params = tuple(params)
        self._frozen = [p for p in params if _is_frozen(p)]
        self.buffers = [FlatBuffer(alike) for alike in grouped(p for p in params if not _is_frozen(p))]

    def is_current(self, params: Sequence[Tensor]) -> bool:
        """Returns whether these are the parameters, and all of them are where they belong."""
        if len(params) != len(self.params) or not all(map(is_, params, self.params)):
            return False  # == of tensors would be a tensor
        return all(map(_is_frozen, self._frozen)) and all(map(FlatBuffer.is_current, self.buffers))


def _is_frozen(p: Tensor) -> bool:
    return not p.requires_grad and p.grad is None


class GroupState:
    """The FlatBuffers and FlatStates of a parameter group.

    Attributes:
        flats: a FlatState for each FlatBuffer.
    """

    def __init__(
        self, params: Sequence[Tensor], state: States, names: Sequence[str], scalars: dict[str, float],
        by_parameter: bool, kernel: str | None,
    ):
        self._group, self._kernel = FlatGroup(params), kernel
        self.flats = [
            FlatState(buffer, state, names, scalars, by_parameter, kernel) for buffer in self._group.buffers
        ]

    def is_current(
        self, params: Sequence[Tensor], state: States, names: Sequence[str], kernel: str | None
    ) -> bool:
        """Returns whether parameters, gradients and state are still where these flat vectors have them."""
        if kernel != self._kernel or not self._group.is_current(params):
            return False
        return all(map(methodcaller("is_current", state, names), self.flats))
