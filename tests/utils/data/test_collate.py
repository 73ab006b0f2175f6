"""Collating against PyTorch's."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pytest
import torch
import torch.utils.data

import mytorch
from mytorch.utils import data

Pair = namedtuple("Pair", ["x", "y"])


class Row(Sequence):
    """Neither a list nor a tuple, and it can be made of a list."""

    def __init__(self, entries):
        self.entries = list(entries)

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        return self.entries[i]


class Fixed(Row, Mapping):
    """Not to be changed, and it can't be made of a dict alone."""

    def __init__(self, entries, name):
        self.entries = dict(entries)

    def __iter__(self):
        return iter(self.entries)


def tensor_of(module):
    return mytorch.Tensor if module is mytorch else torch.tensor


# name: a function of the module, giving the samples
BATCHES = {
    "arrays": lambda m: [np.arange(3, dtype=np.int32), np.arange(3, 6, dtype=np.int32)],
    "0-d arrays": lambda m: [np.array(1.5), np.array(2.5)],
    "empty arrays": lambda m: [np.zeros((0, 2), np.float32)] * 3,
    "views": lambda m: [np.arange(6).reshape(2, 3).T, np.ones((3, 2), int)],
    "tensors": lambda m: [tensor_of(m)([1.0, 2.0]), tensor_of(m)([3.0, 4.0])],
    "floats": lambda m: [1.5, 2.5, float("nan")],
    "ints": lambda m: [1, 2, 3],
    "ints and a float": lambda m: [1, 2.5],
    "bools": lambda m: [True, False],
    "NumPy floats": lambda m: [np.float32(1), np.float32(2)],
    "NumPy ints": lambda m: [np.int16(1), np.int16(2)],
    "NumPy bools": lambda m: [np.bool_(True), np.bool_(False)],
    "strings": lambda m: ["a", "bc"],
    "bytes": lambda m: [b"a", b"bc"],
    "tuples": lambda m: [(np.ones(2), 1, "x"), (np.zeros(2), 2, "y")],
    "lists": lambda m: [[1, 2.0], [3, 4.0], [5, 6.0]],
    "one sample": lambda m: [(np.ones((2, 2)), 7)],
    "dicts": lambda m: [{"x": np.ones(2), "y": 1}, {"y": 2, "x": np.zeros(2)}],
    "more keys": lambda m: [{"x": 1}, {"x": 2, "y": 3}],
    "ordered dicts": lambda m: [OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)],
    "default dicts": lambda m: [defaultdict(list, a=1), defaultdict(list, a=2)],
    "named tuples": lambda m: [Pair(1, np.ones(2)), Pair(2, np.zeros(2))],
    "nested": lambda m: [
        {"a": [(1, {"b": np.ones(1)})], "c": "x"},
        {"a": [(2, {"b": np.zeros(1)})], "c": "y"},
    ],
    "no dicts": lambda m: [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})],
    "no dicts, nor to be made": lambda m: [Fixed({"a": np.ones(2)}, "x"), Fixed({"a": np.zeros(2)}, "y")],
    "no lists": lambda m: [Row([1, np.ones(2)]), Row([3, np.zeros(2)])],
    "queues": lambda m: [deque([1, 2.0], maxlen=2), deque([3, 4.0], maxlen=2)],
    "dtypes": lambda m: [np.arange(2), np.ones(2, np.float32)],
    "small dtypes": lambda m: [np.arange(2, dtype=np.int32), np.ones(2, np.float16)],
    "dtypes of tensors": lambda m: [tensor_of(m)([1.0, 2.0]), tensor_of(m)([1, 2])],
    "empty rows": lambda m: [np.zeros((2, 0)), np.ones((2, 0))],
    "empty containers": lambda m: [({}, []), ({}, [])],
    "large ints": lambda m: [2**63 - 1, -(2**63)],
    "ranges": lambda m: [range(3), range(3, 6)],
}


def same(mine, his):
    if isinstance(his, torch.Tensor):
        assert isinstance(mine, mytorch.Tensor)
        assert str(mine.dtype) == str(his.dtype).removeprefix("torch.") and mine.shape == tuple(his.shape)
        np.testing.assert_array_equal(mine.numpy(), his.numpy())
        return
    assert type(mine) is type(his)
    if isinstance(his, Mapping):
        assert list(mine) == list(his)
        for key in his:
            same(mine[key], his[key])
    elif isinstance(his, Sequence) and not isinstance(his, (str, bytes)):
        assert len(mine) == len(his)
        for a, b in zip(mine, his, strict=True):
            same(a, b)
    else:
        assert mine == his


@pytest.mark.parametrize("name", BATCHES)
def test_collate(name):
    make = BATCHES[name]
    same(data.default_collate(make(mytorch)), torch.utils.data.default_collate(make(torch)))


SAMPLES = {
    name: (lambda m, make=make: make(m)[0])
    for name, make in BATCHES.items()
    if name not in ("NumPy bools", "ranges")
} | {"number": lambda m: 3, "text": lambda m: "abc", "string array": lambda m: "x"}


@pytest.mark.parametrize("name", SAMPLES)
def test_convert(name):
    same(data.default_convert(SAMPLES[name](mytorch)), torch.utils.data.default_convert(SAMPLES[name](torch)))


def test_samples_stay_as_they_were():
    batch = [{"x": np.ones(2)}, {"x": np.zeros(2)}]
    out = data.default_collate(batch)
    out["x"].fill_(7)
    assert batch[0]["x"].tolist() == [1, 1] and len(batch[0]) == 1


def test_gradients_pass_through_tensors():
    xs = [mytorch.Tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
    (data.default_collate(xs) * mytorch.Tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert [x.grad.tolist() for x in xs] == [[1, 2], [3, 4]]


def test_arrays_and_tensors_together():
    out = data.default_collate([mytorch.Array([1.0]), np.array([2.0], np.float32), mytorch.Tensor([3.0])])
    assert out.tolist() == [[1], [2], [3]] and out.dtype == np.float32


SHAPES = [(), (0,), (1,), (2,), (3,), (0, 2), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (1, 2, 2), (2, 2, 1)]


@pytest.mark.parametrize("first", SHAPES, ids=str)
def test_only_equal_shapes_are_stacked(first):
    """Nothing is broadcast, wherever in the batch the other shape is."""
    for other in SHAPES:
        for shapes in ([first, other], [first, other, first], [first, first, other]):
            batch = [np.full(shape, i) for i, shape in enumerate(shapes)]
            if other == first:
                same(data.default_collate(batch), torch.utils.data.default_collate(batch))
                continue
            with pytest.raises(RuntimeError, match=r"sample \d has shape .*, sample 0 has"):
                data.default_collate(batch)


def test_on_a_gpu(fake_cuda):
    out = data.default_collate(
        [mytorch.Tensor([1.0, 2.0], device="cuda:0"), mytorch.Tensor([3.0, 4.0], device="cuda:0")]
    )
    assert out.device == "cuda:0" and out.cpu().tolist() == [[1, 2], [3, 4]]
    out = data.default_collate([mytorch.Array([1.0], device="cuda:0"), mytorch.Array([2.0], device="cuda:0")])
    assert out.device == "cuda:0" and out.cpu().tolist() == [[1], [2]]


WRONG = {
    "shapes": (
        RuntimeError,
        [{"x": [np.ones(2)]}, {"x": [np.ones(2)]}, {"x": [np.ones(3)]}],
        r"sample 2 at \['x'\]\[0\] has shape \(3,\), sample 0 has \(2,\)",
    ),
    "tensor shapes": (
        RuntimeError,
        [mytorch.Tensor([1.0]), mytorch.Tensor([[1.0]])],
        r"sample 1 has shape \(1, 1\), sample 0 has \(1,\)",
    ),
    "lengths": (
        RuntimeError,
        [[1, 2], [1]],
        "sample 1 is a list of length 1, sample 0 has a list of length 2",
    ),
    "missing key": (KeyError, [{"x": 1}, {"y": 1}], "sample 1 has no 'x'"),
    "None": (TypeError, [(1, None), (2, None)], r"found <class 'NoneType'> at \[1\]"),
    "object": (TypeError, [object()], "found <class 'object'>"),
    "array and None": (TypeError, [np.ones(2), None], "sample 1 is a NoneType, sample 0 has an array"),
    "number and text": (TypeError, [1, "a"], "sample 1 is a str, sample 0 has a number"),
    "list and number": (RuntimeError, [[1], 1], "sample 1 is a int, sample 0 has a list of length 1"),
    "strings in an array": (TypeError, [np.array(["a"])], "found <U1 in the array of sample 0"),
    "bytes in another order": (TypeError, [np.arange(2).astype(">i4")], "found >i4 in the array of sample 0"),
    "too large": (OverflowError, [(1,), (2**63,)], r"sample 1 at \[0\] is 9223372036854775808"),
    "nothing": (ValueError, [], "the batch is empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_samples(case):
    error, batch, message = WRONG[case]
    with pytest.raises(error, match=message):
        data.default_collate(batch)
