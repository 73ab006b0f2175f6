"""Sequences of several lengths: padded to one length, or packed without the padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor, from_raw
from ...ops import cat, full, stack


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences concatenated step by step: all first elements, then all second ones, and so on.

    The longest sequence comes first. Made by `pack_padded_sequence` and `pack_sequence`.

    Attributes:
        data: (elements of all sequences, *).
        batch_sizes: the number of sequences with an element at each step; on the CPU.
        sorted_indices: the index in the batch of each sequence, sorted by length; None if it was sorted.
        unsorted_indices: the inverse permutation.
    """

    def __new__(
        cls, data: Tensor | Sequence[Tensor], batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None, unsorted_indices: Tensor | None = None,
    ):
        if batch_sizes is None:
            data, batch_sizes = data
        if str(batch_sizes.device) != "cpu":
            raise ValueError(f"batch_sizes should always be on CPU, got {batch_sizes.device}")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Returns it on another device or with another dtype; itself if unchanged."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [
            None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)
        ]
        return type(self)(data, self.batch_sizes, *indices)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to(*(args or ("cuda",)), **kwargs)

    def cpu(self) -> PackedSequence:
        return self.to("cpu")

    def double(self) -> PackedSequence:
        return self.to("float64")

    def float(self) -> PackedSequence:
        return self.to("float32")

    def half(self) -> PackedSequence:
        return self.to("float16")

    def long(self) -> PackedSequence:
        return self.to("int64")

    def int(self) -> PackedSequence:
        return self.to("int32")

    @property
    def is_cuda(self) -> bool:
        return self.data.device.type == "cuda"


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Returns the permutation that undoes this one: inverse[permutation[i]] = i."""
    return None if permutation is None else permutation.argsort()


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences.

    Args:
        input: (longest, batch, *), or (batch, longest, *) if `batch_first`.
        lengths: of each sequence, at least 1.
        enforce_sorted: raise if the lengths increase; without it the sequences are sorted.

    Raises:
        RuntimeError: the lengths increase, one is 0, their number is wrong, or the batch is empty.
    """
    counts = np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else lengths, np.int64)
    sequences = input if batch_first else input.transpose(0, 1)
    sorted_indices = None
    if not enforce_sorted:
        order = np.argsort(-counts, kind="stable")
        counts, sorted_indices = counts[order], from_raw(order).to(input.device)
    _check_lengths(counts, sequences)
    # Element t of sequence b is row b * longest + t of all elements; the rows are taken in the packed order.
    longest = int(counts[0])
    batch_sizes = (counts[None] > np.arange(longest)[:, None]).sum(1)
    step, sequence = np.nonzero(counts[None] > np.arange(longest)[:, None])
    sequence = sequence if enforce_sorted else order[sequence]
    index = [from_raw(i).to(input.device) for i in (sequence, step)]
    return PackedSequence(sequences[index[0], index[1]], from_raw(batch_sizes), sorted_indices)


def _check_lengths(counts: np.ndarray, sequences: Tensor) -> None:
    batch, longest = sequences.shape[:2]
    if counts.ndim != 1 or len(counts) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {counts.size} and {batch}"
        )
    if not batch:
        raise RuntimeError("Cannot pack empty tensors.")
    if counts[-1] <= 0 or counts.min() <= 0:
        raise RuntimeError(
            f"Length of all samples has to be greater than 0, but found {counts.min()} in 'lengths'"
        )
    if (np.diff(counts) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True; "
            "with enforce_sorted=False the sequences are sorted"
        )
    if counts[0] > longest:
        raise RuntimeError(f"a length of {counts[0]} is above the length of the padded sequences, {longest}")


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Pads a packed sequence: the inverse of `pack_padded_sequence`.

    Args:
        total_length: pad to this length instead of the longest.

    Returns:
        (longest, batch, *), or (batch, longest, *) if `batch_first`, and the lengths.

    Raises:
        ValueError: `total_length` is less than the longest sequence.
    """
    sizes = sequence.batch_sizes.tolist()
    longest = total_length or len(sizes)
    if longest < len(sizes):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
    lengths = (np.asarray(sizes)[:, None] > np.arange(sizes[0])).sum(0)
    # One row of padding follows all elements; `rows` holds the row of each element of the result.
    data = sequence.data
    padding = full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    starts = np.cumsum([0, *sizes])
    rows = np.full((longest, sizes[0]), len(data), np.int64)
    for t, n in enumerate(sizes):
        rows[t, :n] = np.arange(starts[t], starts[t + 1])
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices.cpu().numpy()
        rows, lengths = rows[:, order], lengths[order]
    rows = np.ascontiguousarray(rows.T if batch_first else rows)
    return cat([data, padding])[from_raw(rows).to(data.device)], from_raw(lengths)


def pad_sequence(
    sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stacks sequences, (length, *) each, padded to the longest.

    Args:
        padding_side: "right" or "left".

    Returns:
        (longest, batch, *), or (batch, longest, *) if `batch_first`.

    Raises:
        RuntimeError: not an iterable, an unknown side, or shapes that differ after the first dimension.
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got {type(sequences)}")
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"pad_sequence: padding_side must be 'left' or 'right', got {padding_side!r}")
    rest = sequences[0].shape[1:]
    longest = max(len(s) for s in sequences)
    padded = []
    for s in sequences:
        if s.shape[1:] != rest:
            raise RuntimeError(
                f"pad_sequence: sequences of shapes {tuple(sequences[0].shape)} and {tuple(s.shape)} differ "
                "after the first dimension"
            )
        padding = full((longest - len(s), *rest), padding_value, dtype=s.dtype, device=s.device)
        padded.append(cat([s, padding] if padding_side == "right" else [padding, s]))
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Undoes `pad_sequence`: returns a list of tensors, (length, *) each."""
    padded = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [s[:length] for s, length in zip(padded, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of tensors, (length, *) each; see `pack_padded_sequence`."""
    sequences = list(sequences)
    return pack_padded_sequence(pad_sequence(sequences), [len(s) for s in sequences], False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Undoes `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
