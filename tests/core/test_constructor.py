"""The class called as a constructor, and its text, beside PyTorch's."""

import copy

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor

VALUES = {
    "ints": ([1, 2],),
    "floats": ([1.5, 2.0],),
    "bools": ([True, False],),
    "nested": ([[1, 2], [3, 4]],),
    "tuple": ((2, 3),),
    "range": (range(3),),
    "NumPy's numbers": ([np.float64(1), np.int64(2)],),
    "empty": ([],),
    "nothing": (),
}
SHAPES = {
    "one size": (5,),
    "two sizes": (2, 3),
    "zero": (0, 3),
    "an integer of NumPy": (np.int64(3),),
    "a 0-d tensor": lambda F: (2, F.tensor(3)),
    "a Size": lambda F: (F.zeros(2, 3).shape,),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_the_default_float(name):
    ours, theirs = Tensor(*VALUES[name]), torch.Tensor(*VALUES[name])
    assert ours.tolist() == theirs.tolist() and ours.dtype == "float32" and ours.shape == theirs.shape


def test_the_default_float_is_the_set_one():
    mytorch.set_default_dtype("float64")
    try:
        assert Tensor([1]).dtype == Tensor(2, 2).dtype == "float64"
    finally:
        mytorch.set_default_dtype("float32")


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_are_a_shape(name):
    made = SHAPES[name]
    ours, theirs = (F.Tensor(*(made(F) if callable(made) else made)) for F in (mytorch, torch))
    assert tuple(ours.shape) == tuple(theirs.shape) and ours.dtype == "float32" and not ours.requires_grad


def test_arrays_keep_dtype_and_memory():
    raw = np.array([1, 2])
    assert Tensor(raw).data._array is raw and Tensor(Array(raw)).dtype == "int64"
    assert Tensor(mytorch.tensor([1, 2])).dtype == "int64" and Tensor(np.float64(2)).dtype == "float64"
    assert Tensor([1, 2], dtype="int64").dtype == "int64" and Tensor(2.5).shape == ()
    assert Tensor([1], requires_grad=True).requires_grad


def test_a_parameter_of_given_sizes():
    p = mytorch.nn.Parameter(Tensor(2, 3))
    mytorch.nn.init.ones_(p.data)
    assert p.requires_grad and copy.deepcopy(p).tolist() == [[1, 1, 1], [1, 1, 1]]


WRONG = {
    "negative": ((-1,), RuntimeError, "negative dimension -1"),
    "not a size": ((2, 3.5), TypeError, "3.5"),
    "values and a size": (([1.0], 2), TypeError, "sizes are ints"),
    "text": (("a",), TypeError, "str"),
    "None": ((None,), TypeError, "None"),
    "complex": (([1j],), TypeError, "complex"),
    "ragged": (([[1, 2], [3]],), ValueError, "inhomogeneous"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    args, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        Tensor(*args)
    with pytest.raises(error):
        torch.Tensor(*args)


FORMATTED = {
    "float": (lambda F: F.tensor(14.0), ""),
    "two digits": (lambda F: F.tensor(14.0), ".2f"),
    "int": (lambda F: F.tensor(3), ""),
    "width": (lambda F: F.tensor(3), "5d"),
    "bool": (lambda F: F.tensor(True), ""),
    "recorded": (lambda F: F.tensor(2.0, requires_grad=True) * 2, ".1f"),
    "float64": (lambda F: F.tensor(0.1, dtype=F.float64), ""),
}


@pytest.mark.parametrize("name", FORMATTED)
def test_a_0_d_tensor_is_formatted_as_its_number(name):
    make, spec = FORMATTED[name]
    assert format(make(mytorch), spec) == format(make(torch), spec)


def test_other_tensors_are_formatted_as_printed():
    x, p = mytorch.ones(2), mytorch.nn.Parameter(mytorch.tensor(2.0))
    assert f"{x}" == str(x) == "tensor([1.00000 1.00000])" and f"{p}".startswith("Parameter containing")
    for F in (mytorch, torch):
        with pytest.raises(TypeError, match="unsupported format string"):
            f"{F.ones(2):.2f}"
