"""Collation of samples to a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...backends.device import is_raw
from ...core.array import Array
from ...core.tensor import Tensor, from_raw, raw_of
from ...ops.join import stack

_EXPECTED = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists"
_empty: Callable[[tuple, np.dtype], np.ndarray] = np.empty


@contextmanager
def allocating(empty: Callable[[tuple, np.dtype], np.ndarray]) -> Iterator[None]:
    """Context in which samples are stacked into arrays from `empty(shape, dtype)`, as in shared memory."""
    global _empty
    before, _empty = _empty, empty
    try:
        yield
    finally:
        _empty = before


def default_collate(batch: Sequence[object]) -> Any:
    """Returns a batch of samples of the same structure, stacked along a new first dimension.

        samples                             batch
        tensors, arrays                     a tensor of shape (batch_size, …)
        numbers                             a tensor of shape (batch_size,); Python floats become float64
        strings, bytes                      a list
        dicts, named tuples, lists          the same type, with each entry collated
        tuples                              a list, with each entry collated

    Raises:
        RuntimeError: shapes, or lengths of lists, differ; the message names the samples.
        TypeError: a type that can't be collated.
    """
    batch = list(batch)
    if not batch:
        raise ValueError("default_collate: the batch is empty")
    return _collate(batch, "")


def default_convert(sample: object) -> Any:
    """Returns a sample with its arrays and NumPy scalars converted to tensors."""
    if isinstance(sample, (Array, np.number, np.bool_)) or (is_raw(sample) and sample.dtype.kind in "biufc"):
        return Tensor(Array(sample))
    if isinstance(sample, Mapping) or _is_sequence(sample):
        return rebuilt(sample, lambda key: default_convert(sample[key]))
    return sample


def _collate(batch: Sequence, place: str) -> Any:
    first = batch[0]
    if isinstance(first, (Tensor, Array)) or is_raw(first):
        return _stack(batch, place)
    if isinstance(first, (int, float, complex, np.number, np.bool_)):
        return _numbers(batch, place)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return rebuilt(first, lambda key: _collate(_entries(batch, key, place), f"{place}[{key!r}]"))
    if _is_sequence(first):
        for i, sample in enumerate(batch):
            if not _is_sequence(sample) or len(sample) != len(first):
                raise RuntimeError(
                    "each element in list of batch should be of equal size: "
                    f"{_name(place, i)} is {_summary(sample)}, sample 0 has {_summary(first)}"
                )
        return rebuilt(first, lambda k: _collate(tuple([sample[k] for sample in batch]), f"{place}[{k}]"))
    raise TypeError(f"{_EXPECTED}; found {type(first)}{f' at {place}' if place else ''}")


def _stack(batch: Sequence, place: str) -> Tensor:
    raws = _raw_arrays(batch)
    if len({x.dtype for x in raws}) == 1 and _is_numeric(raws[0].dtype):
        out = _empty((len(raws), *raws[0].shape), raws[0].dtype)
        try:
            out[...] = raws  # faster than np.stack
        except ValueError:  # their shapes differ
            pass
        else:
            return from_raw(out)
    _check_arrays(batch, place)
    return stack([sample if isinstance(sample, Tensor) else Tensor(Array(sample)) for sample in batch])


def _raw_arrays(batch: Sequence) -> list[np.ndarray]:
    """Returns the samples as NumPy arrays; [] if one is not on the CPU or has a gradient function."""
    raws = []
    for x in batch:
        if isinstance(x, Tensor) and x.node is None:
            x = raw_of(x)
        elif isinstance(x, Array):
            x = x._array
        if not isinstance(x, np.ndarray):
            return []
        raws.append(x)
    return raws


def _is_numeric(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" and dtype.isnative


def _check_arrays(batch: Sequence, place: str) -> None:
    shape = batch[0].shape
    for i, sample in enumerate(batch):
        if not isinstance(sample, (Tensor, Array)) and not is_raw(sample):
            raise TypeError(
                f"default_collate: {_name(place, i)} is {_summary(sample)}, sample 0 has an array"
            )
        if is_raw(sample) and not _is_numeric(sample.dtype):
            raise TypeError(f"{_EXPECTED}; found {sample.dtype} in the array of {_name(place, i)}")
        if sample.shape != shape:
            raise RuntimeError(
                f"default_collate: stack expects each tensor to be equal size: {_name(place, i)} has shape "
                f"{tuple(sample.shape)}, sample 0 has {tuple(shape)}; make them equal in the dataset, or "
                "pass a collate_fn"
            )


def _numbers(batch: Sequence, place: str) -> Tensor:
    if all([type(x) is int for x in batch]):
        try:
            return from_raw(np.array(batch, np.int64))
        except OverflowError:
            i = next(i for i, x in enumerate(batch) if not -(2**63) <= x < 2**63)
            raise OverflowError(
                f"default_collate: {_name(place, i)} is {batch[i]}, which int64 can't hold"
            ) from None
    for i, x in enumerate(batch):
        if not isinstance(x, (int, float, complex, np.number, np.bool_)):
            raise TypeError(f"default_collate: {_name(place, i)} is {_summary(x)}, sample 0 has a number")
    return Tensor(np.asarray(batch)) if isinstance(batch[0], (float, np.generic)) else Tensor(Array(batch))


def _entries(batch: Sequence, key: object, place: str) -> list:
    for i, sample in enumerate(batch):
        if not isinstance(sample, Mapping) or key not in sample:
            raise KeyError(f"default_collate: {_name(place, i)} has no {key!r}, sample 0 has")
    return [sample[key] for sample in batch]


def rebuilt(like: object, entry: Callable[[Any], object]) -> Any:
    """Returns a container of the type of `like` with the entries `entry(key or index)`.

    Tuples, and types that can't be constructed from entries, such as `range`, become lists or dicts.
    """
    content: object
    if isinstance(like, Mapping):
        content = {key: entry(key) for key in like}
    else:
        content = [entry(i) for i in range(len(like))]
    if hasattr(like, "_fields"):
        return type(like)(*content)
    if type(like) in (dict, list) or isinstance(like, tuple):
        return content
    try:
        if not isinstance(like, (MutableMapping, MutableSequence)):
            return type(like)(content)
        out = copy.copy(like)  # keeps other attributes, such as a default
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            out[key] = value
        return out
    except TypeError:
        return content


def _is_sequence(x: object) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _name(place: str, i: int) -> str:
    return f"sample {i}{f' at {place}' if place else ''}"


def _summary(x: object) -> str:
    return f"a {type(x).__name__} of length {len(x)}" if _is_sequence(x) else f"a {type(x).__name__}"
