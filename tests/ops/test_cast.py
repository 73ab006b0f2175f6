"""Casts and moves against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.each import each
from tests.oracle import check

CASTS = ["half", "float", "double", "bool", "byte", "char", "short", "int", "long"]


@each("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
@each("name", CASTS)
def test_casts(name, dtype):
    x = np.array([[0, 1, 2.6], [3, 100, 1]]).astype(dtype)
    check(lambda t: getattr(t, name)(), lambda t: getattr(t, name)(), x)
    check(lambda t: t.type_as(t.int()), lambda t: t.type_as(t.int()), x)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_gradients_come_back_in_the_old_dtype(dtype):
    x = np.linspace(-1, 1, 6).astype("float32").reshape(2, 3)
    check(lambda t: t.to(getattr(mytorch, dtype)) * 2, lambda t: t.to(getattr(torch, dtype)) * 2, x)
    check(lambda t: t.to(dtype=getattr(mytorch, dtype)), lambda t: t.to(dtype=getattr(torch, dtype)), x)


def test_to_takes_a_tensor_a_device_and_both_in_any_form():
    x = Tensor([1.5, 2.5])
    other = Tensor(np.array([1, 2]))
    assert x.to(other).dtype == np.int64 and x.to("cpu", mytorch.float64).dtype == np.float64
    assert x.to(mytorch.device("cpu")) is x and x.to(mytorch.float32) is x and x.cpu() is x
    assert x.to(np.float16).dtype == np.float16 and x.to(float).dtype == np.float64
    same = x.to("cpu", copy=True)
    same.add_(1.0)
    assert x.tolist() == [1.5, 2.5] and same.tolist() == [2.5, 3.5]
    assert x.to(mytorch.float32, False, True) is not x and x.to("cpu", True, False) is x


@pytest.mark.parametrize("args", [(np.float32, np.float64), ("cpu", "cpu"), (True, True, True)], ids=str)
def test_to_refuses_two_of_a_kind(args):
    with pytest.raises(TypeError, match=r"to\(\): "):
        Tensor([1.0]).to(*args)


def test_type_knows_the_old_names():
    for dtype in ("float32", "float64", "float16", "uint8", "int8", "int16", "int32", "int64", "bool"):
        x, theirs = mytorch.tensor([1, 2]).to(dtype), torch.tensor([1, 2]).to(getattr(torch, dtype))
        assert x.type() == theirs.type() and Tensor([1.0]).type(x.type()).dtype == x.dtype
    assert x.type(mytorch.float64).dtype == np.float64
    with pytest.raises(ValueError, match="invalid type 'foo'"):
        x.type("foo")


def test_clone_has_memory_of_its_own_and_passes_the_gradient():
    x = np.array([1.0, 2.0], "float32")
    check(lambda t: t.clone().mul_(3.0), lambda t: t.clone().mul_(3.0), x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.to("tpu"), RuntimeError, "'tpu' is not a device, .*'cuda'.* is not a dtype"),
        (lambda x: x.to(dtype="complex256"), TypeError, "complex256"),
        (lambda x: x.to("cuda:0"), RuntimeError, "needs CuPy.*pip install"),
        (lambda x: x.to(device="cpu:1"), RuntimeError, "'cpu:1'"),
        (lambda x: x.to("cpu", colour=1), TypeError, "colour"),
        (lambda x: x.to(object()), TypeError, "is not a dtype"),
    ],
)
def test_wrong_targets(call, error, message):
    with pytest.raises(error, match=message):
        call(Tensor([1.0]))


def test_questions_about_a_tensor():
    for values, other in (([1.5, 2], [1]), ([0], [3]), ([True], [False]), ([[1, 2]], [[3, 4]])):
        ours, theirs = (
            (mytorch.tensor(values), mytorch.tensor(other)),
            (torch.tensor(values), torch.tensor(other)),
        )
        for name in ("is_floating_point", "is_complex", "is_signed", "numel", "is_tensor"):
            assert getattr(mytorch, name)(ours[0]) == getattr(torch, name)(theirs[0]), name
        assert mytorch.is_same_size(*ours) == ours[0].is_same_size(ours[1]) == torch.is_same_size(*theirs)
        assert ours[0].nbytes == theirs[0].nbytes
    assert not mytorch.is_nonzero(mytorch.tensor(0.0)) and mytorch.tensor([[2]]).is_nonzero()
    with pytest.raises(RuntimeError, match="ambiguous"):
        mytorch.is_nonzero(mytorch.tensor([1, 2]))
