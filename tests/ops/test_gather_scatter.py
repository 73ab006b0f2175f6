"""Gathering, scattering and adding along a dim against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.each import each
from tests.oracle import LAYOUTS, check, fails_alike, in_both

rng = np.random.default_rng(0)


def numbers(shape, dtype="float32"):
    return np.asarray(rng.uniform(-9, 9, shape), dtype)


def long(F, *values):
    return F.tensor(values if len(values) != 1 else values[0], dtype=F.int64)


# name: (shapes of the float inputs, the call with either library as F)
CASES = {
    "gather": ([(3, 4)], lambda F, x: F.gather(x, 1, F.tensor([[0, 3], [3, 3], [1, 0]]))),
    "gather smaller": ([(3, 4)], lambda F, x: x.gather(1, F.tensor([[0, 0], [3, 2]]))),
    "gather dim 0": ([(3, 4)],
        lambda F, x: x.gather(0, F.tensor([[0, 2, 2], [2, 1, 2], [0, 1, 2], [1, 1, 1]]))),
    "gather 3-d": ([(2, 3, 4)], lambda F, x: x.gather(-2, F.tensor([[[0, 1], [2, 2], [1, 1], [0, 0]]]))),
    "gather int32": ([(3, 4)], lambda F, x: x.gather(1, F.tensor([[0]], dtype=F.int32))),
    "gather nothing": ([(3, 4)], lambda F, x: x.gather(1, F.zeros((0, 4), dtype=F.int64))),
    "gather 0-d": ([()], lambda F, x: x.gather(0, long(F, 0))),
    "gather from 0-d": ([()], lambda F, x: x.gather(0, long(F, 0, 0))),
    "gather 0-d index": ([(3,)], lambda F, x: x.gather(0, long(F, 2))),
    "scatter": ([(3, 4), (2, 2)], lambda F, x, y: F.scatter(x, 1, F.tensor([[0, 3], [2, 1]]), y)),
    "scatter dim 0": ([(3, 4), (1, 4)], lambda F, x, y: x.scatter(0, F.tensor([[0, 2, 2, 1]]), y)),
    "scatter number": ([(3, 4)], lambda F, x: x.scatter(1, F.tensor([[0], [3], [3]]), 2.0)),
    "scatter value": ([(3, 4)], lambda F, x: x.scatter(1, F.tensor([[0], [3]]), value=2)),
    "scatter nothing": ([(3, 4)], lambda F, x: x.scatter(1, F.zeros((0, 4), dtype=F.int64), 2)),
    "scatter 0-d": ([()], lambda F, x: x.scatter(0, long(F, 0), 2)),
    "scatter_": ([(3, 4), (2, 2)], lambda F, x, y: (x * 2).scatter_(1, F.tensor([[0, 3], [2, 1]]), y)),
    "scatter_add": ([(3, 4), (2, 3)],
        lambda F, x, y: F.scatter_add(x, 1, F.tensor([[0, 3, 0], [1, 1, 1]]), y)),
    "scatter_add dim 0": ([(3, 4), (2, 2)], lambda F, x, y: x.scatter_add(0, F.tensor([[0, 2], [0, 0]]), y)),
    "scatter_add_": ([(3, 4), (1, 2)], lambda F, x, y: (x * 2).scatter_add_(1, F.tensor([[1, 1]]), y)),
    "scatter add": ([(3, 4), (2, 3)],
        lambda F, x, y: F.scatter(x.detach(), 1, F.tensor([[0, 3, 0], [1, 1, 1]]), y.detach(), reduce="add")),
    "scatter multiply": ([(3, 4)],
        lambda F, x: x.detach().scatter(0, F.tensor([[0, 2, 2, 1]]), value=3, reduce="multiply")),
    **{
        f"scatter_reduce {reduce} {'' if own else 'alone'}": ([(3, 4), (2, 3)],
            lambda F, x, y, reduce=reduce, own=own: F.scatter_reduce(
                x, 1, F.tensor([[0, 3, 0], [1, 1, 1]]), y, reduce, include_self=own))
        for reduce in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)
    },
    "scatter_reduce dim 0": ([(3, 4), (2, 3)],
        lambda F, x, y: x.scatter_reduce(0, F.tensor([[0, 2, 0], [0, 2, 1]]), y, "prod")),
    "scatter_reduce 0-d": ([(), ()], lambda F, x, y: x.scatter_reduce(0, F.tensor(0), y, "amax")),
    "scatter_reduce nothing": ([(3, 4)],
        lambda F, x: x.scatter_reduce(1, F.zeros((0, 4), dtype=F.int64), x.detach(), "sum")),
    "scatter_reduce zeros": ([(3, 4), (2, 3)],
        lambda F, x, y: (x * F.tensor([0, 1, 1, 0])).scatter_reduce(
            1, F.tensor([[0, 3, 1], [1, 1, 2]]), y * F.tensor([0, 1, 0]), "prod")),
    "scatter_reduce ties": ([(3, 4), (2, 3)],
        lambda F, x, y: (x * 0).scatter_reduce(1, F.tensor([[0, 3, 0], [1, 1, 1]]), y * 0, "amax")),
    "scatter_reduce_": ([(3, 4), (2, 3)],
        lambda F, x, y: (x * 2).scatter_reduce_(1, F.tensor([[0, 3, 0], [1, 1, 1]]), y, "amin")),
    "index_copy": ([(3, 4), (2, 4)], lambda F, x, y: F.index_copy(x, 0, long(F, 2, 0), y)),
    "index_copy dim": ([(2, 3, 4), (2, 1, 4)], lambda F, x, y: x.index_copy(-2, long(F, [1]), y)),
    "index_copy 0-d": ([(), ()], lambda F, x, y: x.index_copy(0, long(F, [0]), y)),
    "index_copy nothing": ([(3, 4), (0, 4)], lambda F, x, y: x.index_copy(0, F.zeros(0, dtype=F.int64), y)),
    "index_copy_": ([(3, 4), (3, 2)], lambda F, x, y: (x * 2).index_copy_(1, long(F, 3, 0), y)),
    "index_fill": ([(3, 4)], lambda F, x: F.index_fill(x, 1, long(F, -1, 0, 0), 2)),
    "index_fill tensor": ([(3, 4), ()], lambda F, x, y: x.index_fill(0, long(F, 1), y)),
    "index_fill 0-d": ([()], lambda F, x: x.index_fill(0, long(F, [0]), 2)),
    "index_fill_": ([(3, 4), ()], lambda F, x, y: (x * 2).index_fill_(0, long(F, 1, 1), y)),
    "index_put": ([(3, 4), (2,)], lambda F, x, y: F.index_put(x, (long(F, 2, 0), long(F, 1, 1)), y)),
    "index_put rows": ([(3, 4), (4,)], lambda F, x, y: x.index_put((long(F, 2, 0),), y)),
    "index_put accumulate": ([(3, 4), (3,)],
        lambda F, x, y: x.index_put((long(F, 2, 0, 2), long(F, 1, 1, 1)), y, accumulate=True)),
    "index_put accumulate mask": ([(3, 4), ()],
        lambda F, x, y: x.index_put((F.tensor([True, False, True]),), y, True)),
    "index_put 0-d": ([(3, 4), (4,)], lambda F, x, y: x.index_put((long(F, 1),), y, accumulate=True)),
    "index_put_": ([(3, 4), (2,)],
        lambda F, x, y: (x * 2).index_put_((long(F, 2, 2), long(F, 1, 1)), y, accumulate=True)),
    "put": ([(3, 4), (2, 2)], lambda F, x, y: x.put(F.tensor([[0, -1], [5, 6]]), y)),
    "put accumulate": ([(3, 4), (2, 2)],
        lambda F, x, y: x.put(F.tensor([[0, -1], [11, 0]]), y, accumulate=True)),
    "put_": ([(3, 4), (2,)], lambda F, x, y: (x * 2).put_(long(F, 3, -3), y)),
    "index_select of 0-d": ([()], lambda F, x: x.index_select(0, long(F, [0]))),
    "index_add 0-d": ([(), ()], lambda F, x, y: x.index_add(0, long(F, [0]), y, alpha=3)),
    "index_select": ([(3, 4)], lambda F, x: F.index_select(x, 0, long(F, 2, 0, 2))),
    "index_select dim": ([(2, 3, 4)], lambda F, x: x.index_select(-1, long(F, 3, 3))),
    "index_select 0-d index": ([(3, 4)], lambda F, x: x.index_select(1, long(F, 3))),
    "index_select nothing": ([(3, 4)], lambda F, x: x.index_select(1, F.zeros(0, dtype=F.int64))),
    "index_add": ([(3, 4), (3, 4)], lambda F, x, y: F.index_add(x, 0, long(F, 2, 0, 2), y)),
    "index_add dim, alpha": ([(3, 4), (3, 2)], lambda F, x, y: x.index_add(1, long(F, 3, 3), y, alpha=2)),
    "index_add_": ([(3, 4), (3, 2)], lambda F, x, y: (x * 2).index_add_(1, long(F, 3, 0), y)),
    "take": ([(3, 4)], lambda F, x: F.take(x, F.tensor([[0, -1], [11, 11]]))),
    "take 0-d": ([(3, 4)], lambda F, x: x.take(long(F, 5))),
    "take_along_dim": ([(3, 4)], lambda F, x: F.take_along_dim(x, F.tensor([[0], [3], [3]]), 1)),
    "take_along_dim broadcast": ([(3, 4)], lambda F, x: F.take_along_dim(x, F.tensor([[2, -1]]), dim=1)),
    "take_along_dim broadcast input": ([(1, 4)], lambda F, x: x.take_along_dim(F.tensor([[2], [0]]), 1)),
    "take_along_dim flat": ([(3, 4)], lambda F, x: F.take_along_dim(x, long(F, 2, 11, 2))),
    "repeat_interleave": ([(3, 4)], lambda F, x: F.repeat_interleave(x, 2)),
    "repeat_interleave dim": ([(3, 4)], lambda F, x: x.repeat_interleave(3, dim=0)),
    "repeat_interleave 0": ([(3, 4)], lambda F, x: x.repeat_interleave(0, dim=-1)),
    "repeat_interleave each": ([(3, 4)], lambda F, x: x.repeat_interleave(long(F, 1, 0, 2), dim=0)),
    "repeat_interleave each dim": ([(2, 3)],
        lambda F, x: x.repeat_interleave(long(F, 1, 0, 2), 1, output_size=3)),
    "repeat_interleave 1 tensor": ([(3, 4)], lambda F, x: x.repeat_interleave(F.tensor([2]), dim=1)),
    "repeat_interleave empty": ([(0, 3)], lambda F, x: x.repeat_interleave(F.zeros(0, dtype=F.int64), dim=0)),
    "repeat_interleave 0-d": ([()], lambda F, x: x.repeat_interleave(2)),
}


@each("layout", ["contiguous", "reversed"])
@each("case", CASES)
def test_against_pytorch(case, layout):
    shapes, call = CASES[case]
    check(*in_both(call), *(LAYOUTS[layout](numbers(shape)) for shape in shapes))


@each("dtype", ["float64", "float16", "int64", "int32"])
@each("case", CASES)
def test_dtypes(case, dtype):
    shapes, call = CASES[case]
    check(*in_both(call), *(numbers(shape, dtype) for shape in shapes))


ERRORS = {
    "gather beyond": (lambda F, x: x.gather(1, F.tensor([[4]])),
        "index 4 is out of bounds for dimension 1 with size 4"),
    "gather negative": (lambda F, x: x.gather(1, F.tensor([[-1]])), "index -1 is out of bounds"),
    "gather dims": (lambda F, x: x.gather(1, F.tensor([0])),
        r"same number of dimensions.*\[1\] and \[3, 4\]"),
    "gather larger": (lambda F, x: x.gather(0, F.tensor([[0] * 5])),
        r"\[1, 5\] to be no larger than \[3, 4\] .* 0"),
    "gather float": (lambda F, x: x.gather(1, F.tensor([[0.0]])), "int64 or int32 for index, got float32"),
    "gather list": (lambda F, x: x.gather(1, [[0]]), "index of gather.*expected a Tensor, got list"),
    "gather dim": (lambda F, x: x.gather(2, F.tensor([[0]])), r"\[-2, 1\], but got 2"),
    "scatter beyond": (lambda F, x: x.scatter(1, F.tensor([[4]]), 1),
        "index 4 is out of bounds for dimension 1"),
    "scatter dtype": (lambda F, x: x.scatter(1, F.tensor([[0]]), F.tensor([[1]])), "float32, got int64"),
    "scatter src": (lambda F, x: x.scatter(1, F.tensor([[0, 1]]), F.ones(1, 1)), r"\[1, 2\] .* src \[1, 1\]"),
    "scatter without": (lambda F, x: x.scatter(1, F.tensor([[0]])), "src or value"),
    "scatter_add number": (lambda F, x: x.scatter_add(1, F.tensor([[0]]), 1.0),
        "src of scatter_add.*expected a Tensor, got float"),
    "scatter reduce": (lambda F, x: x.scatter(1, F.tensor([[0]]), 2, reduce="mean"), "multiply, got 'mean'"),
    "scatter_reduce": (lambda F, x: x.scatter_reduce(1, F.tensor([[0]]), x, "add"), "amin, got 'add'"),
    "scatter_reduce number": (lambda F, x: x.scatter_reduce(1, F.tensor([[0]]), 1.0, "sum"), "got float"),
    "scatter_reduce beyond": (lambda F, x: x.scatter_reduce(1, F.tensor([[4]]), x, "amax"), "4 is out of"),
    "scatter_reduce dtype": (lambda F, x: x.scatter_reduce(1, F.tensor([[0]]), x.long(), "sum"), "got int64"),
    "scatter_reduce bool": (lambda F, x: (x > 0).scatter_reduce(1, F.tensor([[0]]), x > 0, "mean"), "bools"),
    "index_copy beyond": (lambda F, x: x.index_copy(0, F.tensor([3]), x[:1]), "index 3 is out of bounds"),
    "index_copy count": (lambda F, x: x.index_copy(0, F.tensor([0]), x), r"\[1, 4\], got \[3, 4\]"),
    "index_copy slices": (lambda F, x: x.index_copy(0, F.tensor([0]), x[:1, :2]), r"got \[1, 2\]"),
    "index_copy int32": (lambda F, x: x.index_copy(0, F.tensor([0]).int(), x[:1]), "got int32"),
    "index_copy 2-d": (lambda F, x: x.index_copy(0, F.tensor([[0]]), x[:1]), "vector"),
    "index_fill beyond": (lambda F, x: x.index_fill(0, F.tensor([-4]), 1), "index -4 is out of bounds"),
    "index_fill value": (lambda F, x: x.index_fill(0, F.tensor([0]), x[0, :1]), "0-d tensor"),
    "index_fill int32": (lambda F, x: x.index_fill(0, F.tensor([0]).int(), 1), "got int32"),
    "index_fill 2-d": (lambda F, x: x.index_fill(0, F.tensor([[0]]), 1), "vector"),
    "index_put dtype": (lambda F, x: x.index_put((F.tensor([0]),), F.tensor(1)), "float32, got int64"),
    "index_put number": (lambda F, x: x.index_put((F.tensor([0]),), 1.0), "got float"),
    "index_put no tuple": (lambda F, x: x.index_put(F.tensor([0]), x[0]), "tuple of tensors"),
    "index_put beyond": (lambda F, x: x.index_put((F.tensor([3]),), x[0]), "3 is out of bounds"),
    "index_put shape": (lambda F, x: x.index_put((F.tensor([0]),), x[0, :3], True), "size"),
    "put count": (lambda F, x: x.put(F.tensor([0]), x), "12 elements for 1 ind"),
    "put beyond": (lambda F, x: x.put(F.tensor([12]), x[0, :1]), "index 12 is out of bounds"),
    "put dtype": (lambda F, x: x.put(F.tensor([0]), F.tensor([1])), "got int64"),
    "index_select of 0-d": (lambda F, x: x[0, 0].index_select(0, F.tensor([0, 0])), "takes 1 index, got 2"),
    "index_add 2-d": (lambda F, x: x.index_add(0, F.tensor([[0]]), x[:1]), "vector"),
    "index_select beyond": (lambda F, x: x.index_select(0, F.tensor([3])), "index 3 is out of bounds"),
    "index_select negative": (lambda F, x: x.index_select(0, F.tensor([-1])), "index -1 is out of bounds"),
    "index_select 2-d": (lambda F, x: x.index_select(0, F.tensor([[0]])), "vector"),
    "index_select float": (lambda F, x: x.index_select(0, F.tensor([0.0])), "got float32"),
    "index_add beyond": (lambda F, x: x.index_add(0, F.tensor([3]), x[:1]), "index 3 is out of bounds"),
    "index_add shape": (lambda F, x: x.index_add(0, F.tensor([0]), x), r"\[1, 4\].* got \[3, 4\]"),
    "index_add dtype": (lambda F, x: x.index_add(0, F.tensor([0]), x[:1].double()),
        "float32, got float64"),
    "take beyond": (lambda F, x: x.take(F.tensor([12])), "12 .* size 12"),
    "take int32": (lambda F, x: x.take(F.tensor([0], dtype=F.int32)), "got int32"),
    "take_along_dim dims": (lambda F, x: x.take_along_dim(F.tensor([0]), 1), "2 dimensions, indices has 1"),
    "take_along_dim float": (lambda F, x: x.take_along_dim(F.tensor([[0.0]]), 1), "got float32"),
    "repeat_interleave": (lambda F, x: x.repeat_interleave(-1), "-1 repeats"),
    "repeat_interleave size": (lambda F, x: x.repeat_interleave(F.tensor([1, 2]), 0),
        r"\[2\] for 3 slices along dim 0"),
    "repeat_interleave each": (lambda F, x: x.repeat_interleave(F.tensor([1, -2, 0]), 0),
        "must not be negative"),
    "repeat_interleave output": (
        lambda F, x: x.repeat_interleave(F.tensor([1, 2, 0]), 0, output_size=4), "output_size is 4, .* 3"),
}


@each("case", ERRORS)
def test_errors(case):
    call, match = ERRORS[case]
    fails_alike(*in_both(call), numbers((3, 4)), match=match)


NUMBERS = [1.5, -1.5, -1, True, 300, -300, 2**40, 1e30, float("nan"), float("inf"), 1j]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float16", "bool"])
@pytest.mark.parametrize("value", NUMBERS, ids=str)
def test_numbers_of_other_kinds(value, dtype):
    """A fraction is cut to an integer, -1 is 255 in uint8; what doesn't fit is an error."""

    def fill(F, x):
        x = x.to(getattr(F, dtype))
        return x.masked_fill(x == 1, value), x.scatter(0, F.tensor([0]), value), F.full_like(x, value)

    x = np.array([1, 2, 3])
    try:
        fill(torch, torch.from_numpy(x))
    except RuntimeError:
        with pytest.raises(RuntimeError, match=f"cannot be converted to {dtype}"):
            fill(mytorch, Tensor(x))
    else:
        check(*in_both(fill), x)


def test_scatter_src_may_be_larger_than_index():
    """PyTorch has no backward for it."""

    def call(F, x, src):
        return x.scatter(1, F.tensor([[0, 3], [2, 1]]), src)

    x, src = numbers((3, 4)), numbers((3, 4))
    check(*in_both(call), x, src, grad=False)
    src = Tensor(src, requires_grad=True)
    call(mytorch, Tensor(x), src).backward(np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(src.grad.numpy(), [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])


INDEX, MASK = mytorch.tensor([0]), mytorch.tensor([True])


@pytest.mark.parametrize("name, arguments", [
    ("gather", (0, INDEX)), ("scatter", (0, INDEX, 1)), ("index_select", (0, INDEX)),
    ("take", (INDEX,)), ("take_along_dim", (INDEX, 0)), ("repeat_interleave", (2,)),
    ("masked_fill", (MASK, 1)), ("masked_select", (MASK,)), ("select", (0, 0)),
    ("nonzero", ()),
])
def test_only_tensors(name, arguments):
    with pytest.raises(TypeError, match="expected a Tensor, got list"):
        getattr(mytorch, name)([1.0, 2.0], *arguments)


def test_repeat_interleave_of_repeats():
    check(*in_both(lambda F, x: F.repeat_interleave(x)), np.array([1, 0, 2]))
    for repeats in ([2, 1], np.array([2, 1])):
        assert mytorch.tensor([5, 6]).repeat_interleave(repeats).tolist() == [5, 5, 6]
