"""Names that programs for PyTorch use beside functions: dtypes, typed tensors, constants, default device."""

import math
import threading

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor

TYPED = {
    "FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "LongTensor": "int64",
    "IntTensor": "int32", "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8",
    "BoolTensor": "bool", "BFloat16Tensor": "bfloat16",
}


@pytest.mark.parametrize("name", TYPED)
def test_typed_tensors(name):
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    for args in (([1, 0, 1],), (2, 3), ()):
        got, want = ours(*args), theirs(*args)
        assert str(got.dtype) == TYPED[name] == str(want.dtype)[6:] and tuple(got.shape) == tuple(want.shape)
        assert got.type() == want.type() and isinstance(got, ours) and isinstance(want, theirs)
        assert isinstance(Array(got.data), ours) and not isinstance(1.0, ours)
    assert ours([1, 0]).tolist() == theirs([1, 0]).tolist()
    assert mytorch.ones(2).type(ours).type() == torch.ones(2).type(theirs).type() == f"torch.{name}"


def test_typed_tensors_cast_no_tensor():
    for F in (mytorch, torch):
        assert F.FloatTensor(F.ones(2)).tolist() == [1, 1] and not isinstance(F.ones(2), F.LongTensor)
        with pytest.raises(TypeError, match="float32|float"):
            F.LongTensor(F.ones(2))


def test_typed_tensors_on_a_gpu(fake_cuda):
    x = mytorch.cuda.FloatTensor([1, 2])
    assert x.device == "cuda:0" and x.type() == "torch.cuda.FloatTensor"
    assert isinstance(x, mytorch.cuda.FloatTensor) and not isinstance(x, mytorch.FloatTensor)
    assert mytorch.ones(1).type("torch.cuda.LongTensor").type() == "torch.cuda.LongTensor"
    assert x.type(mytorch.FloatTensor).device == "cpu" and x.type(mytorch.cuda.HalfTensor).device == "cuda:0"


def test_a_dtype_is_an_instance_of_dtype():
    for name in ("float32", "int64", "bool", "bfloat16"):
        assert isinstance(getattr(mytorch, name), mytorch.dtype)
    assert isinstance(mytorch.ones(1).dtype, mytorch.dtype) and not isinstance("float32", mytorch.dtype)
    assert mytorch.float32.itemsize == torch.float32.itemsize == 4


def test_constants():
    for name in ("pi", "inf", "e"):
        assert getattr(mytorch, name) == getattr(torch, name) == getattr(math, name)
    assert math.isnan(mytorch.nan)


def test_frombuffer_shares_the_memory():
    buffer = bytearray(b"abcdefgh")
    for dtype, how in (("uint8", {}), ("int16", {"count": 2, "offset": 2}), ("float32", {})):
        got = mytorch.frombuffer(buffer, dtype=getattr(mytorch, dtype), **how)
        want = torch.frombuffer(buffer, dtype=getattr(torch, dtype), **how)
        assert got.tolist() == want.tolist() and str(got.dtype) == dtype
    mytorch.frombuffer(buffer, dtype=mytorch.uint8)[0] = 122
    assert buffer[:1] == b"z" and mytorch.frombuffer(buffer, dtype="float32", requires_grad=True).is_leaf
    for F in (mytorch, torch):
        with pytest.raises(ValueError):
            F.frombuffer(bytearray(b"abc"), dtype=F.int16)


NEW = {
    "zeros": lambda: mytorch.zeros(2), "full": lambda: mytorch.full((2,), 1), "eye": lambda: mytorch.eye(2),
    "rand": lambda: mytorch.rand(2), "randint": lambda: mytorch.randint(3, (2,)),
    "randperm": lambda: mytorch.randperm(3), "arange": lambda: mytorch.arange(3),
    "linspace": lambda: mytorch.linspace(0, 1, 3), "tensor": lambda: mytorch.tensor([1]),
    "tensor of an array": lambda: mytorch.tensor(np.ones(2)), "as_tensor": lambda: mytorch.as_tensor([1]),
    "tril_indices": lambda: mytorch.tril_indices(2, 2), "normal": lambda: mytorch.normal(0.0, 1.0, (2,)),
    "a layer": lambda: mytorch.nn.Linear(2, 2).weight,
}


@pytest.mark.parametrize("name", NEW)
def test_the_default_device_is_that_of_new_tensors(name, fake_cuda):
    make = NEW[name]
    assert make().device == "cpu" == mytorch.get_default_device()
    with mytorch.device("cuda:1") as device:
        assert make().device == device == mytorch.get_default_device() == "cuda:1"
        with mytorch.device("cpu"):
            assert make().device == "cpu"
        assert make().device == "cuda:1"
    assert make().device == "cpu" == mytorch.get_default_device()
    mytorch.set_default_device("cuda")
    try:
        assert make().device == "cuda:0"
    finally:
        mytorch.set_default_device(None)
    assert make().device == "cpu"


def test_what_the_default_device_does_not_change(fake_cuda):
    x, raw, seen = mytorch.ones(2), np.ones(2), []
    with mytorch.device("cuda:1"):
        assert mytorch.zeros(2, device="cpu").device == "cpu" and mytorch.zeros_like(x).device == "cpu"
        assert mytorch.from_numpy(raw).device == Tensor(raw).device == x.new_zeros(2).device == "cpu"
        thread = threading.Thread(target=lambda: seen.append(mytorch.ones(1).device))
        thread.start()
        thread.join()
    assert seen == ["cpu"]
    with pytest.raises(ValueError), mytorch.device("cuda:1"):
        raise ValueError
    assert mytorch.ones(1).device == "cpu"
    with pytest.raises(RuntimeError, match="cuda:7"):
        mytorch.set_default_device("cuda:7")


def test_set_printoptions():
    x = mytorch.tensor([1.23456789, 2.0])
    try:
        mytorch.set_printoptions(precision=2)
        assert str(x) == "tensor([1.23 2.00])" and str(x.data).startswith("Array([1.23 2.00]")
        mytorch.set_printoptions(sci_mode=True)
        assert str(x) == "tensor([1.23e+00 2.00e+00])"
        mytorch.set_printoptions(profile="full")
        assert str(mytorch.zeros(2000)).count("0.00000") == 2000
        mytorch.set_printoptions(profile="default", threshold=5, edgeitems=1)
        assert str(mytorch.arange(9)) == "tensor([0 ... 8])"
        with pytest.raises(ValueError, match="'other'"):
            mytorch.set_printoptions(profile="other")
    finally:
        mytorch.set_printoptions(profile="default")
    assert str(x) == "tensor([1.23457 2.00000])"
