"""cat, stack, split and their kin against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from tests.each import each
from tests.oracle import LAYOUTS, check, fails_alike, in_both, same

rng = np.random.default_rng(0)

# name: (shapes of the tensors, the call with either library as F)
JOINS = {
    "cat": ([(2, 3), (4, 3)], lambda F, *xs: F.cat(xs)),
    "cat dim": ([(2, 3), (2, 1), (2, 0)], lambda F, *xs: F.cat(list(xs), dim=1)),
    "cat negative dim": ([(2, 3, 1), (2, 3, 2)], lambda F, *xs: F.cat(xs, -1)),
    "cat one": ([(2, 3)], lambda F, *xs: F.cat(xs)),
    "cat itself": ([(2, 3)], lambda F, x: F.cat([x, x * 2, x])),
    "cat empty": ([(0, 3), (2, 3)], lambda F, *xs: F.cat(xs)),
    "cat with a 1-d empty one": ([(0,), (2, 3), (0,)], lambda F, *xs: F.cat(xs, 1)),
    "cat of 1-d empty ones": ([(0,), (0,)], lambda F, *xs: F.cat(xs)),
    "concat": ([(2, 3), (4, 3)], lambda F, *xs: F.concat(xs)),
    "concatenate": ([(2, 3), (2, 3)], lambda F, *xs: F.concatenate(xs, dim=1)),
    "stack": ([(2, 3), (2, 3)], lambda F, *xs: F.stack(xs)),
    "stack dim": ([(2, 3), (2, 3), (2, 3)], lambda F, *xs: F.stack(list(xs), dim=1)),
    "stack end": ([(2, 3), (2, 3)], lambda F, *xs: F.stack(xs, -1)),
    "stack 0-d": ([(), ()], lambda F, *xs: F.stack(xs)),
    "stack empty": ([(0, 3), (0, 3)], lambda F, *xs: F.stack(xs, 1)),
    "hstack": ([(2, 3), (2, 1)], lambda F, *xs: F.hstack(xs)),
    "hstack 1-d": ([(2,), (3,)], lambda F, *xs: F.hstack(xs)),
    "hstack 0-d": ([(), ()], lambda F, *xs: F.hstack(xs)),
    "vstack": ([(2, 3), (1, 3)], lambda F, *xs: F.vstack(xs)),
    "vstack 1-d": ([(3,), (2, 3)], lambda F, *xs: F.vstack(xs)),
    "dstack": ([(2, 3), (2, 3)], lambda F, *xs: F.dstack(xs)),
    "dstack 1-d": ([(3,), (1, 3)], lambda F, *xs: F.dstack(xs)),
    "column_stack": ([(3,), (3, 2)], lambda F, *xs: F.column_stack(xs)),
    "column_stack 0-d": ([(), ()], lambda F, *xs: F.column_stack(xs)),
    "row_stack": ([(3,), (2, 3)], lambda F, *xs: F.row_stack(xs)),
    "atleast_1d": ([()], lambda F, x: F.atleast_1d(x)),
    "atleast_1d several": ([(), (2, 3)], lambda F, *xs: F.atleast_1d(*xs)),
    "atleast_1d list": ([(), (3,)], lambda F, *xs: F.atleast_1d(list(xs))),
    "atleast_2d": ([(), (3,), (2, 3)], lambda F, *xs: F.atleast_2d(*xs)),
    "atleast_3d": ([(), (3,), (2, 3), (1, 2, 3)], lambda F, *xs: F.atleast_3d(*xs)),
    "unpacking": ([(2, 3)], lambda F, x: (lambda a, b: a * b)(*x)),
}
SPLITS = {
    "split": ([(5, 3)], lambda F, x: F.split(x, 2)),
    "split even": ([(4, 3)], lambda F, x: x.split(2)),
    "split larger": ([(4, 3)], lambda F, x: x.split(9)),
    "split sizes": ([(3, 5)], lambda F, x: x.split([1, 4], dim=1)),
    "split with an empty part": ([(3, 5)], lambda F, x: x.split((0, 5), -1)),
    "split empty": ([(0, 3)], lambda F, x: x.split(2)),
    "split empty by 0": ([(0, 3)], lambda F, x: x.split(0)),
    "split empty by nothing": ([(0, 3)], lambda F, x: x.split([])),
    "chunk": ([(5, 3)], lambda F, x: F.chunk(x, 2)),
    "chunk dim": ([(2, 6)], lambda F, x: x.chunk(3, dim=-1)),
    "chunk fewer": ([(5, 3)], lambda F, x: x.chunk(4)),
    "chunk more": ([(2, 3)], lambda F, x: x.chunk(5)),
    "chunk empty": ([(0, 3)], lambda F, x: x.chunk(3)),
    "tensor_split": ([(5, 3)], lambda F, x: F.tensor_split(x, 3)),
    "tensor_split at": ([(5, 3)], lambda F, x: x.tensor_split((1, 3))),
    "tensor_split at dim": ([(2, 5)], lambda F, x: x.tensor_split([2, 1, 9, -1], dim=1)),
    "tensor_split tensor": ([(5, 3)], lambda F, x: x.tensor_split(F.tensor([1, 3]).cpu())),
    "tensor_split indices": ([(5, 3)], lambda F, x: x.tensor_split(indices=(1, 3), dim=0)),
    "tensor_split sections": ([(5, 3)], lambda F, x: F.tensor_split(x, sections=2, dim=1)),
    "split_with_sizes": ([(5, 3)], lambda F, x: F.split_with_sizes(x, [1, 4])),
    "split_with_sizes dim": ([(3, 5)], lambda F, x: x.split_with_sizes((2, 3), dim=-1)),
    "hsplit": ([(2, 4)], lambda F, x: F.hsplit(x, 2)),
    "hsplit 1-d": ([(4,)], lambda F, x: x.hsplit([1])),
    "vsplit": ([(4, 2)], lambda F, x: F.vsplit(x, (1, 3))),
    "dsplit": ([(1, 2, 4)], lambda F, x: F.dsplit(x, 4)),
    "unbind": ([(3, 2)], lambda F, x: F.unbind(x)),
    "unbind dim": ([(3, 2, 4)], lambda F, x: x.unbind(-1)),
    "unbind 1-d": ([(3,)], lambda F, x: x.unbind()),
    "unbind empty": ([(0, 3)], lambda F, x: x.unbind()),
    "unbind of empty parts": ([(2, 0)], lambda F, x: x.unbind()),
    "iteration": ([(3, 2)], lambda F, x: list(x)),
}
CASES = {**JOINS, **SPLITS}


def numbers(shape, dtype="float32"):
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    return np.asarray(rng.uniform(-9, 9, shape), dtype)


@each("layout", LAYOUTS)
@each("case", CASES)
def test_against_pytorch(case, layout):
    shapes, call = CASES[case]
    check(*in_both(call), *(LAYOUTS[layout](numbers(shape)) for shape in shapes))


@each("dtype", ["float64", "float16", "int64", "bool"])
@each("case", CASES)
def test_dtypes(case, dtype):
    shapes, call = CASES[case]
    if dtype == "bool" and case in ("unpacking", "cat itself"):
        dtype = "int32"
    check(*in_both(call), *(numbers(shape, dtype) for shape in shapes))


@pytest.mark.parametrize("dtypes", [
    ("float32", "float64"), ("float16", "float32"), ("int64", "float16"), ("int32", "int64"),
    ("bool", "uint8"),
    ("int64", "bool", "float32"),
])
@pytest.mark.parametrize("name", ["cat", "stack"])
def test_promotion(name, dtypes):
    check(*in_both(lambda F, *xs: getattr(F, name)(xs)), *(numbers((2, 3), dtype) for dtype in dtypes))


def test_the_dtype_of_an_empty_tensor_counts():
    check(*in_both(lambda F, *xs: F.cat(xs)), numbers((0,), "float64"), numbers((2, 3)))


@pytest.mark.parametrize("case", SPLITS)
def test_parts_share_memory_and_version(case):
    [shape], call = SPLITS[case]
    x = mytorch.Tensor(numbers(shape))
    parts = call(mytorch, x)
    x += 1
    for mine, his in zip(parts, call(torch, torch.from_numpy(x.numpy())), strict=True):
        assert mine._version is x._version
        same(mine, his)


def test_only_some_parts_used():
    def call(F, x):
        a, b, c = x.split([1, 2, 3], dim=1)
        return b * 2

    check(*in_both(call), numbers((2, 6)))
    check(*in_both(lambda F, x: x.unbind(1)[2] * 3), numbers((2, 6)))


def test_one_gradient_for_all_parts():
    """The gradient of a split is built once, not added up from a padded one for each part."""
    x = mytorch.Tensor(numbers((4, 6)), requires_grad=True)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(g.numpy()))
    q, k, v = y.split(2, dim=1)
    assert q.node.parents == k.node.parents == v.node.parents
    assert [n.name for n in q.node.parents[0].parents if n] == ["mul"]
    (q * 1 + k * 2 + v * 3).backward(np.ones((4, 2), np.float32))
    [g] = seen
    np.testing.assert_array_equal(g, np.repeat([[1, 1, 2, 2, 3, 3]], 4, axis=0))


ERRORS = {
    "cat none": (lambda F, x: F.cat([]), "non-empty"),
    "cat tensor": (lambda F, x: F.cat(x), "list or tuple of tensors, got Tensor"),
    "cat number": (lambda F, x: F.cat([x, 1]), "element 1 of cat.*got int"),
    "cat 0-d": (lambda F, x: F.cat([x[0, 0], x[0, 0]]), "zero-dimensional tensor .at position 0"),
    "cat shapes": (lambda F, x: F.cat([x, x[:, :2]]), r"except in dimension 0, got \[3, 4\] and \[3, 2\]"),
    "cat dims": (lambda F, x: F.cat([x, x[0]]), r"\[3, 4\] and \[4\]"),
    "cat dim": (lambda F, x: F.cat([x, x], 2), r"\[-2, 1\], but got 2"),
    "stack none": (lambda F, x: F.stack([]), "non-empty"),
    "stack shapes": (lambda F, x: F.stack([x, x[0]]), r"\[3, 4\] at entry 0 and \[4\] at entry 1"),
    "stack dim": (lambda F, x: F.stack([x, x], 3), r"\[-3, 2\], but got 3"),
    "split 0": (lambda F, x: x.split(0), "size 3 into pieces of size 0"),
    "split negative": (lambda F, x: x.split(-1), "size 3 into pieces of size -1"),
    "split sum": (lambda F, x: x.split([1, 1]), r"exactly to 3 .the size of dimension 0., got \[1, 1\]"),
    "split negative size": (lambda F, x: x.split([4, -1]), r"not negative.*\[4, -1\]"),
    "split float": (lambda F, x: x.split(1.5), "1.5"),
    "split 0-d": (lambda F, x: x[0, 0].split(1), "at least a 1-dimensional"),
    "split dim": (lambda F, x: x.split(1, 2), r"\[-2, 1\], but got 2"),
    "chunk 0": (lambda F, x: x.chunk(0), "greater than 0, got 0"),
    "chunk 0-d": (lambda F, x: x[0, 0].chunk(1), "at least a 1-dimensional"),
    "tensor_split": (lambda F, x: x.tensor_split(0), "larger than 0, got 0"),
    "unbind 0-d": (lambda F, x: x[0, 0].unbind(), "0-d"),
    "iteration 0-d": (lambda F, x: list(x[0, 0]), "iteration over a 0-d tensor"),
    "unbind dim": (lambda F, x: x.unbind(2), r"\[-2, 1\], but got 2"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, match = ERRORS[case]
    fails_alike(*in_both(call), numbers((3, 4)), match=match)


def test_numpy_names():
    x = mytorch.Tensor(numbers((2, 3)))
    assert mytorch.cat([x, x], axis=1).shape == (2, 6)
    assert mytorch.stack([x, x], axis=-1).shape == (2, 3, 2)
    assert [p.shape for p in mytorch.split(x, 2, axis=1)] == [(2, 2), (2, 1)]
