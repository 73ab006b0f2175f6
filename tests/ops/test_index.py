"""x[index] against PyTorch and NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mytorch
from mytorch import Tensor
from tests.each import each
from tests.oracle import check, fails_alike, in_both, same

rng = np.random.default_rng(0)


def numbers(shape, dtype="float32"):
    values = rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else rng.uniform(-9, 9, shape)
    return np.asarray(values, dtype)


def long(F, *values):
    return F.tensor(values if len(values) != 1 else values[0], dtype=F.int64)


MASK = np.array([[True, False, True], [False, False, True]])

# name: the index of a (2, 3, 4) tensor, with either library as F
BASIC = {
    "int": lambda F: 1,
    "negative int": lambda F: -1,
    "NumPy int": lambda F: np.int64(1),
    "ints": lambda F: (1, 2, 3),
    "slice": lambda F: slice(1, None),
    "empty slice": lambda F: slice(2, 1),
    "slice beyond": lambda F: slice(-9, 9),
    "slice with a step": lambda F: (slice(None), slice(None), slice(0, None, 3)),
    "slice by tensors": lambda F: slice(long(F, 0), long(F, 1)),
    "slices": lambda F: (slice(0, 1), slice(-2, None), slice(1, 3)),
    "int and slices": lambda F: (slice(None), 0, slice(1, 3)),
    "ellipsis": lambda F: ...,
    "ellipsis first": lambda F: (..., 1),
    "ellipsis last": lambda F: (1, ...),
    "ellipsis in the middle": lambda F: (1, ..., 2),
    "ellipsis for nothing": lambda F: (1, 2, ..., 3),
    "ellipses": lambda F: (..., ...),
    "ellipses last": lambda F: (1, ..., ...),
    "ellipses around": lambda F: (..., 1, ...),
    "ellipses for nothing": lambda F: (1, ..., 2, ..., 3, ...),
    "None": lambda F: None,
    "Nones": lambda F: (None, 1, None, ..., None),
    "nothing": lambda F: (),
    "0-d tensor": lambda F: long(F, 1),
    "0-d tensors": lambda F: (long(F, 1), slice(None), long(F, -2)),
    "0-d int32 tensor": lambda F: F.tensor(1, dtype=F.int32),
}
ADVANCED = {
    "list": lambda F: [1, 0, 1],
    "range": lambda F: range(2),
    "tuple in a tuple": lambda F: (0, (1, 2)),
    "empty list": lambda F: [],
    "tensor": lambda F: long(F, 1, 0, -1),
    "int32 tensor": lambda F: F.tensor([1, 0], dtype=F.int32),
    "2-d tensor": lambda F: F.tensor([[0, 1, 1], [-1, 0, 0]]),
    "empty tensor": lambda F: F.zeros(0, dtype=F.int64),
    "empty 2-d tensor": lambda F: F.zeros((3, 0), dtype=F.int64),
    "NumPy array": lambda F: np.array([1, 1]),
    "two": lambda F: (long(F, 0, 1, 1), long(F, 2, 0, 0)),
    "two broadcast": lambda F: (F.tensor([[0], [1]]), long(F, 0, 2, 2)),
    "three": lambda F: (long(F, 0, 0), long(F, 1, -1), long(F, 3, 3)),
    "later": lambda F: (slice(None), long(F, 0, 2, 0)),
    "last": lambda F: (..., long(F, 3, 0, 0)),
    "ellipses around": lambda F: (..., long(F, 3, 0, 0), ...),
    "two later": lambda F: (slice(None), long(F, 0, 2, 2), long(F, 3, 1, 1)),
    "two apart": lambda F: (long(F, 0, 1, 0), slice(1, None), long(F, 2, 2, 2)),
    "two apart by None": lambda F: (long(F, 0, 1), None, long(F, 2, 2)),
    "two broadcast, apart": lambda F: (F.tensor([[0], [1]]), slice(None), long(F, 3, 1)),
    "int then list": lambda F: (0, slice(None), [0, 1, 1]),
    "slice, int, list": lambda F: (slice(None), 0, [0, 1]),
    "list then int": lambda F: ([0, 1], slice(None), 2),
    "0-d tensor then list": lambda F: (long(F, 1), slice(None), [0, 1]),
    "slice with a step, list": lambda F: (slice(None), slice(None, None, 2), [3, 0]),
    "None then list": lambda F: (None, [0, 1, 1]),
    "mask": lambda F: F.tensor(MASK),
    "mask of all": lambda F: F.tensor(np.arange(24).reshape(2, 3, 4) % 5 == 0),
    "mask as a list": lambda F: [True, False],
    "mask as an array": lambda F: MASK,
    "mask later": lambda F: (slice(None), F.tensor([True, False, True])),
    "mask of two dims later": lambda F: (1, F.tensor(np.arange(12).reshape(3, 4) % 2 == 0)),
    "mask last": lambda F: (..., F.tensor([True, False, True, True])),
    "mask of nothing": lambda F: F.zeros(2, dtype=F.bool),
    "mask and int": lambda F: (F.tensor(MASK), 2),
    "mask and list": lambda F: (F.tensor([True, True]), [0, 2]),
    "mask, slice, list": lambda F: (F.tensor([True, False]), slice(None), [0, 2]),
    "two masks": lambda F: (F.tensor([True, True]), F.tensor([True, False, True])),
    "int, mask of None": lambda F: (None, 0, F.tensor([False, True, True])),
    "True": lambda F: True,
    "False": lambda F: False,
    "True and an int": lambda F: (0, True),
    "True and a list": lambda F: (True, [0, 1]),
    "0-d mask": lambda F: F.tensor(True),
}
INDICES = {**BASIC, **ADVANCED}


def repeats(index):
    """Does the index name an element twice? Then PyTorch doesn't say which value wins."""
    found = places(index)
    return len(np.unique(found)) < found.size


def places(index):
    """Which of the 24 elements of a (2, 3, 4) tensor the index names."""
    return torch.arange(24).reshape(2, 3, 4)[index].numpy()


LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: np.flip(np.flip(a).copy()),
}


@each("layout", LAYOUTS)
@pytest.mark.parametrize("index", INDICES)
def test_getitem(index, layout):
    check(*in_both(lambda F, x: x[INDICES[index](F)]), LAYOUTS[layout](numbers((2, 3, 4))))


@each("dtype", ["float64", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("index", INDICES)
def test_getitem_dtypes(index, dtype):
    check(*in_both(lambda F, x: x[INDICES[index](F)]), numbers((2, 3, 4), dtype))


@pytest.mark.parametrize("shape, index", [
    ((), ()), ((), None), ((), ...), ((), True), ((0, 3), slice(1)), ((0, 3), (slice(None), 1)), ((0, 3), []),
    ((3, 0), [0, 2]), ((3, 0), (slice(None), [])), ((1,), [0] * 7), ((3, 1), [2, 2]), ((), (..., ...)),
    ((), (None, ..., ...)), ((2,), (..., ..., 0)),
])
def test_getitem_of_other_shapes(shape, index):
    check(*in_both(lambda F, x: x[index]), numbers(shape))


NESTED = {
    "one list": lambda F: [[0, 1]],
    "two lists": lambda F: [[0, 1], [1, 0]],
    "deeper": lambda F: [[[0, 1]]],
    "tensors": lambda F: [F.tensor([1, 0]), [0, 0]],
    "0-d tensors": lambda F: [F.tensor(1), F.tensor(0)],
    "slices": lambda F: [slice(0, 1), 1],
    "None": lambda F: [None, 0],
    "ellipsis": lambda F: [..., 0],
}


@pytest.mark.parametrize("name", NESTED)
def test_a_list_of_lists_is_a_tuple_as_in_pytorch(name):
    with pytest.warns(UserWarning, match="taken as x.a, b.|non-tuple sequence"):
        check(*in_both(lambda F, x: x[NESTED[name](F)]), numbers((2, 3, 4)))
    x, theirs = mytorch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    with pytest.warns(UserWarning):
        x[NESTED[name](mytorch)] = 1
        theirs[NESTED[name](torch)] = 1
    assert x.tolist() == theirs.tolist()


def test_uint8_is_a_mask_as_in_pytorch():
    with pytest.warns(UserWarning, match="uint8"):
        check(*in_both(lambda F, x: x[F.tensor([1, 0], dtype=F.uint8)]), numbers((2, 3)))


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "uint32", "uint64"])
def test_other_integers_index_as_in_numpy(dtype):
    x = numbers((3, 4))
    np.testing.assert_array_equal(Tensor(x)[Tensor(np.array([2, 0], dtype))].numpy(), x[[2, 0]])


@pytest.mark.parametrize("index", BASIC)
def test_basic_indices_give_views(index):
    x = Tensor(numbers((2, 3, 4)))
    y = x[BASIC[index](mytorch)]
    x += 1
    assert y is not x and y._version is x._version
    same(y, torch.from_numpy(x.numpy())[BASIC[index](torch)])


@each("index", ADVANCED)
def test_advanced_indices_give_copies(index):
    x = Tensor(numbers((2, 3, 4)))
    y = x[ADVANCED[index](mytorch)]
    before = y.numpy().copy()
    x += 1
    np.testing.assert_array_equal(y.numpy(), before)


GETITEM_ERRORS = {
    "beyond": (lambda F: 2, "index 2 is out of bounds for .* 0 with size 2"),
    "beyond, negative": (lambda F: (0, -4), "index -4 is out of bounds for .* 1 with size 3"),
    "beyond, in a list": (lambda F: [0, 2], "index 2 is out of bounds for .* 0 with size 2"),
    "beyond, in two lists": (lambda F: ([0, 1], [0, 3]), "index 3 is out of bounds for .* 1 with size 3"),
    "too many": (lambda F: (0, 0, 0, 0), "too many indices.*3.*4"),
    "too many with a list": (lambda F: (0, 0, 0, [0]), "too many indices for tensor of dimension 3, got 4"),
    "negative step": (lambda F: slice(None, None, -1), "step must be greater than zero, got -1"),
    "step of 0": (lambda F: (0, slice(None, None, 0)), "step must be greater than zero, got 0"),
    "float": (lambda F: 1.5, "got float"),
    "float tensor": (lambda F: F.tensor([0.0]), "got float32"),
    "0-d float tensor": (lambda F: F.tensor(1.0), "got float32"),
    "dict": (lambda F: {}, "got dict"),
    "mask of another size": (lambda F: [True, False, True], r"mask \[3\] .* \[2, 3, 4\] at dimension 0"),
    "mask later": (lambda F: (slice(None), F.tensor([True])), r"mask \[1\] .* \[2, 3, 4\] at dimension 1"),
    "ellipses": (lambda F: (..., ..., 0), "after another one"),
    "shapes": (lambda F: ([0, 1], [0, 1, 2]), r"could not be broadcast together with shapes .2.*3"),
}


@pytest.mark.parametrize("case", GETITEM_ERRORS)
def test_getitem_errors(case):
    index, match = GETITEM_ERRORS[case]
    fails_alike(*in_both(lambda F, x: x[index(F)]), numbers((2, 3, 4)), match=match)


@pytest.mark.parametrize("index, match", [
    ("a", "got str"), ([1.5], "float64"), (([[0], [0, 1]],), "can't be an index"),
])
def test_getitem_errors_of_our_own(index, match):
    with pytest.raises(IndexError, match=match):
        Tensor(numbers((2, 3, 4)))[index]


def test_0_d_tensors_have_no_items():
    fails_alike(*in_both(lambda F, x: x[0]), numbers(()), match="too many indices.*0")


def test_writing_to_an_index_after_use_is_noticed():
    x, index = Tensor(numbers((3, 4)), requires_grad=True), mytorch.tensor([0, 1])
    y = x[index].sum()
    index += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_an_index_on_another_device(fake_cuda):
    x = Tensor(numbers((3, 4)), device="cuda:1")
    index = mytorch.tensor([2, 0])  # from the CPU it may come
    assert x[index].device == x[np.array([2, 0])].device == "cuda:1"
    with pytest.raises(RuntimeError, match="index is on cuda:0, the indexed tensor on cuda:1"):
        x[mytorch.tensor([2, 0], device="cuda:0")]
    with pytest.raises(RuntimeError, match="index is on cuda:1, the indexed tensor on cpu"):
        x.cpu()[mytorch.tensor([2, 0], device="cuda:1")]


@pytest.mark.parametrize("count, dim", [(7, 5), (300, 3), (70_000, 2)])
def test_gradient_of_rows_taken_often(count, dim):
    """As of an embedding: sums over repeated rows, also beyond 65,536 rows; whole numbers add up exactly."""
    index = rng.integers(-count, count, (40, 50))
    index[:4] = 0
    index[1:3, ::2] = 65_536 % count
    slope = rng.integers(-9, 10, (40, 50, dim)).astype(np.float32)
    x, his = Tensor(numbers((count, dim)), requires_grad=True), torch.zeros(count, dim, requires_grad=True)
    x[Tensor(index)].backward(slope)
    his[torch.from_numpy(index)].backward(torch.from_numpy(slope))
    np.testing.assert_array_equal(x.grad.numpy(), his.grad.numpy())


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_half_precision_gradients_are_summed_in_float32(shape):
    x = Tensor(np.zeros(shape, np.float16), requires_grad=True)
    y = x[Tensor(np.zeros(5000, np.int64))]
    y.backward(np.ones(y.shape, np.float16))
    assert np.all(x.grad.numpy()[0] == 5000) and np.all(x.grad.numpy()[1] == 0)


# Properties: whatever index NumPy takes (with positive steps) gives what NumPy gives.


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_basic_indices_as_numpy(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, slice) and (i.step or 1) < 0 for i in items):
        return
    a = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    x = Tensor(a.copy(), requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(y.detach().numpy(), a[index])
    assert y.shape == a[index].shape
    weight = np.asarray(rng.standard_normal(y.shape), np.float32)
    y.backward(weight)
    expected = np.zeros_like(a)
    expected[index] = weight
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    copy = Tensor(a.copy())
    copy[index] = 99
    a[index] = 99
    np.testing.assert_array_equal(copy.numpy(), a)


@st.composite
def advanced(draw):
    """A shape, and an index with at least one array in it, as NumPy and as PyTorch place its dims alike."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    together = draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=3))
    items, dim = [], 0
    while dim < len(shape):
        kind = draw(st.sampled_from(["array", "array", "slice", "mask", "None"]))
        if kind == "array":
            own = draw(st.sampled_from([together, together[-1:], (1,)]))
            items.append(draw(hnp.arrays(np.int64, own, elements=st.integers(-shape[dim], shape[dim] - 1))))
        elif kind == "mask" and len(together) == 1:
            count = shape[dim]
            mask = np.zeros(count, bool)
            chosen = min(together[0], count)
            mask[draw(st.permutations(range(count)))[:chosen]] = True
            items.append(mask if chosen == together[0] else slice(None))
        elif kind == "slice":
            start, stop = draw(st.integers(-4, 4)), draw(st.none() | st.integers(-4, 4))
            items.append(slice(start, stop, draw(st.integers(1, 3))))
        elif kind == "None":
            items.append(None)
            continue
        else:
            items.append(slice(None))
        dim += 1
    return shape, tuple(items)


@settings(max_examples=150, deadline=None)
@given(advanced())
def test_advanced_indices_as_numpy(case):
    shape, index = case
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = Tensor(a.copy(), requires_grad=True)
    y = x[tuple(Tensor(i) if isinstance(i, np.ndarray) else i for i in index)]
    np.testing.assert_array_equal(y.detach().numpy(), a[index])
    assert y.shape == a[index].shape
    weight = np.asarray(rng.integers(-9, 9, y.shape), np.float32)
    y.backward(weight)
    expected = np.zeros_like(a)
    np.add.at(expected, index, weight)
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    copy = Tensor(a.copy())
    copy[index] = 99
    a[index] = 99
    np.testing.assert_array_equal(copy.numpy(), a)


# Basic indices by name.

SELECT = {
    "select": ([(2, 3, 4)], lambda F, x: F.select(x, 1, -1)),
    "select last": ([(2, 3, 4)], lambda F, x: x.select(-1, 2)),
    "narrow": ([(2, 3, 4)], lambda F, x: F.narrow(x, 2, 1, 3)),
    "narrow negative": ([(2, 3, 4)], lambda F, x: x.narrow(-2, -2, 1)),
    "narrow to nothing": ([(2, 3, 4)], lambda F, x: x.narrow(0, 2, 0)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", SELECT)
def test_select_and_narrow(case, layout):
    [shape], call = SELECT[case]
    check(*in_both(call), LAYOUTS[layout](numbers(shape)))


SELECT_ERRORS = {
    "select": (lambda F, x: x.select(1, 4), r"index 4 out of range .* \[3, 4\] at dimension 1"),
    "select 0-d": (lambda F, x: x[0, 0].select(0, 0), "0-d"),
    "narrow": (lambda F, x: x.narrow(1, 3, 2), r"start \(3\) \+ length \(2\) exceeds dimension size \(4\)"),
    "narrow start": (lambda F, x: x.narrow(1, 5, 0), r"\[-4, 4\].* got 5"),
    "narrow length": (lambda F, x: x.narrow(1, 0, -1), r"length \(-1\)"),
    "narrow 0-d": (lambda F, x: x[0, 0].narrow(0, 0, 0), "0-d"),
}


@pytest.mark.parametrize("case", SELECT_ERRORS)
def test_select_and_narrow_errors(case):
    call, match = SELECT_ERRORS[case]
    fails_alike(*in_both(call), numbers((3, 4)), match=match)
