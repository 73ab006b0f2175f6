"""Buckets: neighbouring gradients that travel together.

An all-reduce of a few bytes takes almost as long as one of a megabyte, so gradients are sent many at a time.
They lie end to end in flat vectors already (see `optim.slot`); a bucket is a piece of such a vector, and
nothing is copied. Backward makes the last layers' gradients first, so the buckets begin at the model's end.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020,
https://arxiv.org/abs/2006.15704, section 3.2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.device import device, device_of, on
from ..core.tensor import Tensor, from_raw
from ..optim.flat import _spans, _zeros
from ..optim.slot import Slot


class GradBucket:
    """Some parameters whose gradients are neighbours in one vector; what a communication hook gets.

    Args:
        number: its place in the order in which buckets are reduced, the same on all ranks.
        params: in the order of the vector.
        names: theirs.
    """

    def __init__(self, number: int, params: Sequence[Tensor], names: Sequence[str], is_last: bool = False):
        self._number, self._params, self._is_last = number, list(params), is_last
        self.names = list(names)
        first, last = params[0].grad_slot, params[-1].grad_slot
        self.slots = [p.grad_slot for p in params]
        self.raw = first.vector[first.span[0] : last.span[1]]
        self.waiting: set[int] = set()

    def index(self) -> int:
        """Its place in the order of the buckets."""
        return self._number

    def is_last(self) -> bool:
        """Is it the last one to be reduced?"""
        return self._is_last

    def buffer(self) -> Tensor:
        """All its gradients as one vector, with zeros in the gaps between them; writing changes them."""
        return from_raw(self.raw)

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the gradients by another vector of the same length and dtype."""
        if buffer.data.shape != self.raw.shape or buffer.dtype != self.raw.dtype:
            raise ValueError(
                f"set_buffer(): expected shape {self.raw.shape} and dtype {self.raw.dtype}, "
                f"got {buffer.data.shape} and {buffer.dtype}"
            )
        self.raw[...] = buffer.data._array

    def gradients(self) -> list[Tensor]:
        """The gradients one by one, views of the buffer."""
        return [from_raw(slot.raw) for slot in self.slots]

    def parameters(self) -> list[Tensor]:
        """The parameters that they belong to."""
        return list(self._params)

    def is_current(self) -> bool:
        """Do the parameters still have their gradients here?"""
        return all([p.grad_slot is slot for p, slot in zip(self._params, self.slots, strict=True)])

    def fill(self) -> None:
        """Bring gradients that lie elsewhere here, and zeros in the place of those that are missing."""
        with on(device_of(self.raw)):
            for p, slot in zip(self._params, self.slots, strict=True):
                if p._grad is None:
                    slot.reserve().fill(0)
                elif not slot.holds(p._grad):
                    p._grad = slot.take(p._grad._array)


def make_buckets(
    params: Sequence[Tensor], names: Sequence[str], first_bytes: int, cap_bytes: int
) -> list[GradBucket]:
    """Cut the vectors in which the gradients lie into buckets, in the order in which they get ready.

    Args:
        params: in the order of the model; one without a place in a vector is given one.
        first_bytes: size of the first bucket, small so that communication begins early.
        cap_bytes: of all others. A single parameter may be larger.
    """
    give_slots(params)
    position = {id(p): i for i, p in enumerate(params)}
    by_vector: dict[int, list[Tensor]] = {}
    for p in params:
        by_vector.setdefault(id(p.grad_slot.vector), []).append(p)
    pieces: list[list[Tensor]] = []
    for members in by_vector.values():
        members.sort(key=lambda p: p.grad_slot.span, reverse=True)
        pieces += _cut(members, first_bytes, cap_bytes)
    pieces.sort(key=lambda piece: min(position[id(p)] for p in piece), reverse=True)
    buckets = []
    for number, piece in enumerate(pieces):
        its_names = [names[position[id(p)]] for p in piece]
        buckets.append(GradBucket(number, piece, its_names, number == len(pieces) - 1))
    return buckets


def _cut(members: list[Tensor], first_bytes: int, cap_bytes: int) -> list[list[Tensor]]:
    """Neighbours, from the last to the first, into pieces of at most so many bytes."""
    pieces: list[list[Tensor]] = []
    size, cap = 0, first_bytes
    for p in members:
        start, stop = p.grad_slot.span
        bytes_ = (stop - start) * p.itemsize
        if pieces and pieces[-1][0].grad_slot.span[0] == stop and size + bytes_ <= cap:
            pieces[-1].insert(0, p)
            size += bytes_
        else:
            cap = cap_bytes if pieces else first_bytes
            pieces.append([p])
            size = bytes_
    return pieces


def give_slots(params: Sequence[Tensor]) -> None:
    """Lay the gradients of parameters that no optimizer has laid out end to end."""
    without: dict[tuple[np.dtype, device], list[Tensor]] = {}
    for p in params:
        if p.grad_slot is None:
            without.setdefault((p.dtype, p.device), []).append(p)
    for (dtype, where), members in without.items():
        spans = _spans([p.data.size for p in members], dtype.itemsize)
        with on(where):
            vector: Any = _zeros(spans[-1][1], dtype, where)
            for p, span in zip(members, spans, strict=True):
                place = vector[span[0] : span[0] + p.data.size].reshape(p.data.shape)
                p.grad_slot = Slot(place, vector, span)
                if p._grad is not None:
                    p._grad = p.grad_slot.take(p._grad._array)
