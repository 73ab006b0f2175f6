"""x[index] = value against PyTorch and NumPy."""

import re

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests import on_device
from tests.each import each
from tests.ops.test_index import INDICES, in_both, numbers, places, repeats
from tests.oracle import check, fails_alike, same, torch_of

VALUES = {
    "number": lambda F, part: 2.5,
    "0-d": lambda F, part: F.tensor(2.5),
    "whole": lambda F, part: F.arange(part.numel(), dtype=F.float32).reshape(tuple(part.shape)),
    "leading 1": lambda F, part: F.arange(part.numel(), dtype=F.float32).reshape((1, *part.shape)),
    "row": lambda F, part: F.arange(part.shape[-1] if part.ndim else 1, dtype=F.float32),
}


@each("value", VALUES)
@pytest.mark.parametrize("index", INDICES)
def test_setitem(index, value):
    if value != "number" and repeats(INDICES[index](torch)):
        value = "number"

    def call(F, x):
        y = x * 2
        i = INDICES[index](F)
        y[i] = VALUES[value](F, y[i])
        return y * y

    check(*in_both(call), numbers((2, 3, 4)))


@each("index", INDICES)
def test_setitem_gradient_of_the_value(index):
    found = INDICES[index](torch)
    value = numbers(() if repeats(found) else places(found).shape)

    def call(F, x, value):
        y = x * 2
        y[INDICES[index](F)] = value * 3
        return y * y

    check(*in_both(call), numbers((2, 3, 4)), value)


@each("index", INDICES)
@each("dtype", ["float64", "float16", "int64", "bool"])
def test_setitem_casts(index, dtype):
    """As NumPy does; PyTorch does it for a basic index only."""
    x = numbers((2, 3, 4))
    y = Tensor(x.copy())
    i = INDICES[index](mytorch)
    value = np.ones(y[i].shape, dtype)
    y[i] = Tensor(value)
    assert y.dtype == mytorch.float32
    assert np.all(y[i].numpy() == 1)
    assert np.sum(y.numpy() != x) == len(np.unique(places(INDICES[index](torch))))


def test_setitem_of_overlapping_parts_on_a_gpu(fake_cuda):
    def shift(F, x):
        y = x * 2
        y[1:] = y[:-1]
        return y

    on_device.check(shift, numbers((300,)))


def test_setitem_with_a_broadcast_value_sums_its_gradient():
    def call(F, x, row, column, one):
        y = x * 2
        y[0] = row
        y[:, 0] = column
        y[1, 1:, 1:] = one
        return y

    check(*in_both(call), numbers((2, 3, 4)), numbers((4,)), numbers((1, 2, 1)), numbers((1, 1, 1, 1)))


@pytest.mark.parametrize("value", [5, 2.5, True, [1, 2, 3], [[1.5], [2.5]], np.array([7, 8, 9])], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_setitem_takes_what_numpy_takes(value, dtype):
    x = numbers((2, 3), dtype)
    y = Tensor(x.copy())
    y[:] = value
    x[:] = value
    np.testing.assert_array_equal(y.numpy(), x)
    assert y.dtype == x.dtype


WRITES_OF_NUMBERS = {
    "item": lambda x, value: x.__setitem__((0, 1), value),
    "row": lambda x, value: x.__setitem__(0, value),
    "mask": lambda x, value: x.__setitem__(x > 0, value),
    "fill_": lambda x, value: x.fill_(value),
}


@pytest.mark.parametrize("write", WRITES_OF_NUMBERS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bfloat16", "float32", "bool"])
def test_numbers_that_a_dtype_may_not_hold(write, dtype):
    """-1 is 255 in uint8, too much for half precision infinite, except for fill_; anything else raises."""
    for value in (-1, -1.5, 2.7, 300, -300, 1e6, -1e300, np.inf, True, np.float64(-2.5), 1j):
        xs = [F.arange(6).reshape(2, 3).to(getattr(F, dtype)) for F in (mytorch, torch)]
        before = xs[0].clone()
        try:
            WRITES_OF_NUMBERS[write](xs[1], value)
        except (RuntimeError, TypeError):
            with pytest.raises(RuntimeError, match="cannot be converted to"):
                WRITES_OF_NUMBERS[write](xs[0], value)
            same(xs[0], torch_of(before.numpy()))
        else:
            WRITES_OF_NUMBERS[write](xs[0], value)
            same(xs[0], xs[1])


def test_setitem_without_history_writes_in_place():
    a = numbers((3, 4))
    x = Tensor(a)
    x[1:, 0] = 7
    x[x > 6] = 0
    x[[0, 0], [1, 2]] = Tensor([1.0, 2.0])
    assert a[1, 0] == 0 and list(a[0, 1:3]) == [1, 2]
    assert x._version.count == 3


def test_setitem_of_overlapping_parts():
    x = Tensor(np.arange(6.0))
    x[1:] = x[:-1]
    np.testing.assert_array_equal(x.numpy(), [0, 0, 1, 2, 3, 4])


SETITEM_ERRORS = {
    "shape": (lambda F, x: x.__setitem__(0, F.zeros(5)), r"\(5,\)"),
    "shape of a list": (lambda F, x: x.__setitem__([0, 1], F.zeros(3, 5)), r"\(3, 5\)"),
    "number of elements": (lambda F, x: x.__setitem__(x > 0, F.zeros(99)), r"\(99,\)"),
    "beyond": (lambda F, x: x.__setitem__(2, 0), "index 2 is out of bounds"),
    "float": (lambda F, x: x.__setitem__(1.5, 0), "got float"),
    "negative step": (lambda F, x: x.__setitem__(slice(None, None, -1), 0), "got -1"),
    "text": (lambda F, x: x.__setitem__(0, "a"), "str"),
    "None": (lambda F, x: x.__setitem__(0, None), "NoneType"),
    "leaf": (lambda F, x: x.requires_grad_().__setitem__(0, 1), "leaf tensor that requires grad"),
}


@pytest.mark.parametrize("case", SETITEM_ERRORS)
def test_setitem_errors(case):
    call, match = SETITEM_ERRORS[case]
    fails_alike(*in_both(call), numbers((2, 3, 4)), match=match)


MISFITS = {  # a write, and the shapes that don't fit each other
    "slice": (lambda x: x.__setitem__(slice(0, 2), mytorch.ones(3, 5)), "__setitem__", "(3, 5) into (2, 4)"),
    "array": (lambda x: x.__setitem__([0, 1], np.ones(3)), "__setitem__", "(3,) into (2, 4)"),
    "mask": (lambda x: x.__setitem__(x[:, 0] >= 0, mytorch.ones(2, 4)), "__setitem__", "(2, 4) into (3, 4)"),
    "int": (lambda x: x.__setitem__(1, [1.0, 2.0]), "__setitem__", "(2,) into (4,)"),
    "element": (lambda x: x.__setitem__((1, 1), mytorch.ones(2)), "__setitem__", "(2,) into ()"),
    "None": (lambda x: x.__setitem__((..., None), mytorch.ones(2)), "__setitem__", "(2,) into (3, 4, 1)"),
    "copy_": (lambda x: x[1:].copy_(mytorch.ones(3)), "copy_", "(3,) into (2, 4)"),
    "index_put": (
        lambda x: x.index_put((mytorch.tensor([1]),), mytorch.ones(3)), "index_put_", "(3,) into (1, 4)"
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_shapes_that_do_not_fit_each_other_are_named(case):
    write, name, shapes = MISFITS[case]
    with pytest.raises(RuntimeError, match=re.escape(f"{name}(): can't write shape {shapes}: ")):
        write(mytorch.ones(3, 4))


def test_writing_to_an_index_after_setitem_changes_nothing():
    x, index = Tensor(numbers((3, 4)), requires_grad=True), mytorch.tensor([0, 1])
    y = x * 1
    y[index] = 0
    index += 1
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0] * 4, [0] * 4, [1] * 4])
