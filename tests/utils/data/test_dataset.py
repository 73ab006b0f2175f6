"""Datasets against PyTorch's."""

import numpy as np
import pytest
import torch.utils.data

import mytorch
from mytorch.utils import data


class Squares(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


class Countdown(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n, 0, -1))


def test_tensor_dataset():
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    dataset = data.TensorDataset(mytorch.Tensor(x), mytorch.Tensor(y))
    assert len(dataset) == 4
    a, b = dataset[2]
    assert a.tolist() == [6, 7, 8] and b.item() == 2
    assert [len(part) for part in dataset[1:3]] == [2, 2]
    with pytest.raises(AssertionError, match=r"Size mismatch between tensors: they have lengths \[4, 3\]"):
        data.TensorDataset(mytorch.Tensor(x), mytorch.Tensor(y[:3]))
    with pytest.raises(AssertionError):
        data.TensorDataset()


def test_concat_dataset():
    both = Squares(3) + Squares(5)
    assert len(both) == 8
    assert [both[i] for i in range(8)] == [0, 1, 4, 0, 1, 4, 9, 16]
    assert [both[i] for i in (-1, -8)] == [16, 0]
    with pytest.raises(IndexError, match="index 8 is out of range for 8 samples"):
        both[8]
    with pytest.raises(ValueError, match="index -9 is out of range for 8 samples"):
        both[-9]
    assert data.ConcatDataset([Squares(0), Squares(2), Squares(0)])[1] == 1
    with pytest.raises(AssertionError, match="empty"):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="use ChainDataset"):
        data.ConcatDataset([Countdown(3)])


def test_chain_dataset():
    assert list(Countdown(3) + Countdown(2)) == [3, 2, 1, 2, 1]
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        data.ChainDataset([Countdown(2), [1, 2]])


def test_subset():
    subset = data.Subset(Squares(10), [3, 1, 7])
    assert len(subset) == 3 and [subset[i] for i in range(3)] == [9, 1, 49]
    nested = data.Subset(subset, [2, 0])
    assert list(nested[i] for i in range(2)) == [49, 9]
    array = data.Subset(np.arange(10) * 2, [3, 1])
    assert array[[0, 1]].tolist() == [6, 2]


class Many(Squares):
    """Loads only many at once, and keeps what it was asked for."""

    def __init__(self, n):
        super().__init__(n)
        self.asked = []

    def __getitem__(self, i):
        raise AssertionError("one by one")

    def __getitems__(self, indices):
        self.asked.append(list(indices))
        return [i * i for i in indices]


class Negated(data.Subset):
    def __getitem__(self, i):
        return -super().__getitem__(i)


STACKS = {
    "by position": lambda m: m.StackDataset([1, 2, 3], "abc"),
    "by name": lambda m: m.StackDataset(x=[1, 2, 3], y="abc"),
    "one": lambda m: m.StackDataset([1, 2, 3]),
    "many at once": lambda m: m.StackDataset(x=Many(3), y=Many(3)),
    "some at once": lambda m: m.StackDataset(Many(3), [7, 8, 9]),
    "a subset of many": lambda m: m.Subset(Many(9), [8, 2, 4]),
    "a subset of one by one": lambda m: m.Subset([5, 6, 7, 8], [3, 0, 1]),
    "a stack of subsets": lambda m: m.StackDataset(m.Subset(Many(9), [8, 2, 4]), m.Subset("abcd", [3, 0, 1])),
}


@pytest.mark.parametrize("name", STACKS)
def test_many_at_once_against_pytorch(name):
    ours, theirs = STACKS[name](data), STACKS[name](torch.utils.data)
    assert ours.__getitems__([2, 0]) == theirs.__getitems__([2, 0])
    assert len(ours) == len(theirs) == 3
    if "at once" not in name and "many" not in name and "subsets" not in name:
        assert [ours[i] for i in range(3)] == [theirs[i] for i in range(3)]
    batches = list(data.DataLoader(ours, 2, collate_fn=list))
    assert batches == list(torch.utils.data.DataLoader(theirs, 2, collate_fn=list))


def test_a_loader_asks_for_many_at_once():
    many = Many(9)
    for dataset in (many, data.Subset(many, range(9)), data.StackDataset(many, range(9))):
        list(data.DataLoader(dataset, 4, num_workers=0))
        assert many.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
        many.asked.clear()


def test_a_subset_with_a_getitem_of_its_own():
    dataset = Negated([5, 6, 7], [2, 0])
    assert dataset.__getitems__([0, 1]) == [-7, -5]
    assert [b.tolist() for b in data.DataLoader(dataset, 2)] == [[-7, -5]]
    assert data.Subset(Negated([5, 6, 7], [2, 0]), [1]).__getitems__([0]) == [-5]


class Short(Many):
    def __getitems__(self, indices):
        return [0]


WRONG_STACKS = {
    "nothing": (lambda m: m.StackDataset(), "got neither"),
    "both ways": (lambda m: m.StackDataset([1], x=[1]), "got both"),
    "lengths": (lambda m: m.StackDataset([1], [1, 2]), r"they have lengths \[1, 2\]"),
    "too few": (lambda m: m.StackDataset(Short(3)).__getitems__([0, 1]), "for 2 samples, it returned 1"),
}


@pytest.mark.parametrize("case", WRONG_STACKS)
def test_wrong_stacks(case):
    call, message = WRONG_STACKS[case]
    with pytest.raises(ValueError):  # noqa: PT011 - its words are PyTorch's
        call(torch.utils.data)
    with pytest.raises(ValueError, match=message):
        call(data)


@pytest.mark.parametrize(
    "lengths", [[3, 7], [10], [0, 4, 6], [0.3, 0.7], [0.33, 0.33, 0.34], [1 / 3, 1 / 3, 1 / 3]]
)
def test_random_split(lengths):
    generator = mytorch.Generator().manual_seed(1)
    parts = data.random_split(Squares(10), lengths, generator=generator)
    theirs = torch.utils.data.random_split(range(10), lengths)
    assert [len(part) for part in parts] == [len(part) for part in theirs]
    assert sorted(i for part in parts for i in part.indices) == list(range(10))
    again = data.random_split(Squares(10), lengths, generator=generator.manual_seed(1))
    assert [part.indices for part in again] == [part.indices for part in parts]
    assert [i for part in parts for i in part.indices] != list(range(10))


def test_random_split_wrong():
    with pytest.raises(ValueError, match=r"3 \+ 6 = 9, not 10"):
        data.random_split(Squares(10), [3, 6])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1: 1.5"):
        data.random_split(Squares(10), [1.5, -0.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(Squares(3), [0.99, 0.01])


def test_what_a_subclass_must_define():
    class Nothing(data.Dataset):
        pass

    class Stream(data.IterableDataset[int]):
        pass

    with pytest.raises(NotImplementedError, match="Nothing doesn't define __getitem__"):
        Nothing()[0]
    with pytest.raises(NotImplementedError, match="Stream doesn't define __iter__"):
        iter(Stream())
    with pytest.raises(TypeError):
        len(Nothing())
