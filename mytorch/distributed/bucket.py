"""Buckets: neighbouring gradients that are reduced together.

An all-reduce of a few bytes takes almost as long as one of a megabyte, therefore gradients are sent together.
They lie end to end in flat buffers already (see `core.flat_buffer`); a bucket is a section of such a vector,
and nothing is copied. Backward computes the last layers' gradients first, so the buckets begin at the model's
end.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020,
https://arxiv.org/abs/2006.15704, section 3.2
"""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.device import device_of, on
from ..core.flat_buffer import bind_gradients
from ..core.tensor import Tensor, from_raw, raw_of


class GradBucket:
    """Parameters whose gradients are neighbours in one vector; the argument of a communication hook.

    Args:
        index: the bucket's position in the order of reduction, the same on all ranks.
        params: in the order of the vector.
        names: the parameters' names.

    Attributes:
        raw: the section of the vector.
        pending: the ids of the parameters whose gradients this backward pass hasn't computed yet.
    """

    def __init__(self, index: int, params: Sequence[Tensor], names: Sequence[str], is_last: bool = False):
        self._index, self._params, self._is_last = index, list(params), is_last
        self.names = list(names)
        self._slots = [p.grad_slot for p in params]
        self.raw = self._slots[0].vector[self._slots[0].span[0] : self._slots[-1].span[1]]
        self.pending: set[int] = set()

    def index(self) -> int:
        """Returns the bucket's position in the order of reduction."""
        return self._index

    def is_last(self) -> bool:
        """Returns whether this is the last bucket to be reduced."""
        return self._is_last

    def buffer(self) -> Tensor:
        """Returns all gradients as one vector, with zeros as padding; writing to it changes them."""
        return from_raw(self.raw)

    def set_buffer(self, buffer: Tensor) -> None:
        """Replaces the gradients by another vector of the same length and dtype."""
        if buffer.data.shape != self.raw.shape or buffer.dtype != self.raw.dtype:
            raise ValueError(
                f"set_buffer(): expected shape {self.raw.shape} and dtype {self.raw.dtype}, "
                f"got {buffer.data.shape} and {buffer.dtype}"
            )
        self.raw[...] = raw_of(buffer)

    def gradients(self) -> list[Tensor]:
        """Returns the gradients one by one, views of the buffer."""
        return [from_raw(slot.raw) for slot in self._slots]

    def parameters(self) -> list[Tensor]:
        """Returns the parameters that the gradients belong to."""
        return list(self._params)

    def is_current(self) -> bool:
        """Returns whether the parameters' gradients are still here."""
        return all([p.grad_slot is slot for p, slot in zip(self._params, self._slots, strict=True)])

    def fill(self) -> None:
        """Moves gradients that lie elsewhere into the bucket; where one is missing, fills in zeros."""
        with on(device_of(self.raw)):
            for p, slot in zip(self._params, self._slots, strict=True):
                if p.grad is None:
                    slot.reserve().fill(0)
                else:
                    slot.bind(p)


def make_buckets(
    params: Sequence[Tensor], names: Sequence[str], first_bytes: float, cap_bytes: float
) -> list[GradBucket]:
    """Returns the flat gradients cut into buckets, in the order in which backward completes them.

    Args:
        params: in the order of the model; those that are in no flat buffer are laid out in one.
        first_bytes: size of the first bucket, small so that communication begins early.
        cap_bytes: size of all others. A single parameter may be larger.
    """
    bind_gradients(params)
    position = {id(p): i for i, p in enumerate(params)}
    by_vector: dict[int, list[Tensor]] = {}
    for p in params:
        by_vector.setdefault(id(p.grad_slot.vector), []).append(p)
    contents: list[list[Tensor]] = []
    for members in by_vector.values():
        members.sort(key=lambda p: p.grad_slot.span, reverse=True)
        contents += _split(members, first_bytes, cap_bytes)
    contents.sort(key=lambda members: min(position[id(p)] for p in members), reverse=True)
    return [
        GradBucket(i, members, [names[position[id(p)]] for p in members], is_last=i == len(contents) - 1)
        for i, members in enumerate(contents)
    ]


def _split(members: list[Tensor], first_bytes: float, cap_bytes: float) -> list[list[Tensor]]:
    """Returns neighbours, given from the last to the first, in lists of at most that size."""
    contents: list[list[Tensor]] = []
    size, cap = 0, first_bytes
    for p in members:
        start, stop = p.grad_slot.span
        nbytes = (stop - start) * p.itemsize
        if contents and contents[-1][0].grad_slot.span[0] == stop and size + nbytes <= cap:
            contents[-1].insert(0, p)
            size += nbytes
        else:
            cap = cap_bytes if contents else first_bytes
            contents.append([p])
            size = nbytes
    return contents
