"""Dtypes: names and promotion, against PyTorch's."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mytorch
from mytorch.backends.dtypes import SUPPORTED, as_dtype
from mytorch.core.op import common_dtype
from tests.each import each
from tests.every import every

NAMES = [str(dtype) for dtype in SUPPORTED]
PYTORCH_REFUSES = {"uint16", "uint32", "uint64"}  # it promotes them with nothing but themselves and floats
COMMON = [name for name in NAMES if name not in PYTORCH_REFUSES]
SHAPES = {"dims": (2,), "0-d": ()}
PAIRS = list(itertools.product(COMMON, COMMON))
NUMBERS = [True, 2, 2.5, 1j]


def name_of(dtype):
    """PyTorch's dtype as NumPy names it; a pair of halves is no dtype of NumPy's."""
    return str(dtype).removeprefix("torch.").replace("complex32", "complex64")


def both(dtype, shape):
    return mytorch.ones(shape, dtype=dtype), torch.ones(shape, dtype=getattr(torch, dtype))


@each("a, b", PAIRS)
def test_promote_types(a, b):
    assert mytorch.promote_types(a, b) == name_of(torch.promote_types(getattr(torch, a), getattr(torch, b)))


@each("shapes", itertools.product(SHAPES, SHAPES))
@each("a, b", PAIRS)
def test_dtype_of_two_tensors(a, b, shapes):
    (x, their_x), (y, their_y) = both(a, SHAPES[shapes[0]]), both(b, SHAPES[shapes[1]])
    want = name_of(torch.result_type(their_x, their_y))
    assert common_dtype([x, y]) == want
    assert mytorch.maximum(x, y).dtype == want if "complex" not in want else (x + y).dtype == want


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@each("name", NAMES)
def test_dtype_of_a_tensor_and_a_number(name, number, shape):
    x, theirs = both(name, SHAPES[shape])
    assert common_dtype([x, number]) == name_of(torch.result_type(theirs, number))
    assert common_dtype([number, x]) == name_of(torch.result_type(number, theirs))


@pytest.mark.parametrize("small", sorted(PYTORCH_REFUSES))
@pytest.mark.parametrize("other", [name for name in COMMON if name[0] in "iub"])
def test_unsigned_integers_follow_numpy(small, other):
    want = np.promote_types(small, other)
    if want.kind == "f":  # no integer holds both
        with pytest.raises(TypeError, match=f"promotion of {small} and {other}"):
            mytorch.promote_types(small, other)
    else:
        assert mytorch.promote_types(small, other) == want


OPERANDS = st.one_of(
    st.tuples(st.sampled_from(COMMON), st.sampled_from(list(SHAPES.values()))), st.sampled_from(NUMBERS)
)


@given(st.lists(OPERANDS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_operands_does_not_matter(operands, random):
    operands = [mytorch.ones(o[1], dtype=o[0]) if isinstance(o, tuple) else o for o in operands]
    want = common_dtype(operands)
    random.shuffle(operands)
    assert common_dtype(operands) == want
    assert common_dtype([mytorch.ones(2, dtype=want), *operands]) == want


@given(OPERANDS, OPERANDS)
def test_a_sum_has_pytorchs_dtype(a, b):
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return
    (x, their_x), (y, their_y) = (both(*o) if isinstance(o, tuple) else (o, o) for o in (a, b))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a pair of halves is experimental
        assert (x + y).dtype == name_of((their_x + their_y).dtype)


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    assert as_dtype(name) == getattr(mytorch, name) == np.dtype(name)
    assert as_dtype(f"torch.{name}") == as_dtype(np.dtype(name).type) == np.dtype(name)


ALIASES = ["half", "float", "double", "short", "int", "long", "cfloat", "cdouble"]


@pytest.mark.parametrize("name", ALIASES)
def test_aliases_mean_what_they_mean_in_pytorch(name):
    want = name_of(getattr(torch, name))
    assert getattr(mytorch, name) == as_dtype(name) == mytorch.zeros(2, dtype=name).dtype == want


@pytest.mark.parametrize("python", [bool, int, float])
def test_python_classes_mean_what_they_mean_in_pytorch(python):
    assert mytorch.zeros(2, dtype=python).dtype == name_of(torch.zeros(2, dtype=python).dtype)


@pytest.mark.parametrize("wrong", ["float99", "U3", "datetime64[s]", ">f4", object, 3, "O"])
def test_what_is_no_dtype(wrong):
    with pytest.raises(TypeError, match="is not a dtype|not supported"):
        as_dtype(wrong)


def test_default_dtype():
    assert mytorch.get_default_dtype() == "float32"
    mytorch.set_default_dtype("float64")
    try:
        assert mytorch.zeros(2).dtype == mytorch.tensor(1.5).dtype == mytorch.rand(2).dtype == "float64"
        assert (mytorch.tensor([1, 2]) / 2).dtype == "float64" and repr(
            mytorch.tensor(1.5)
        ) == "tensor(1.50000)"
    finally:
        mytorch.set_default_dtype(mytorch.float32)
    for wrong in ("int64", "bool", "complex64"):
        with pytest.raises(TypeError, match=wrong):
            mytorch.set_default_dtype(wrong)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_of_floats(name):
    ours, theirs = mytorch.finfo(name), torch.finfo(getattr(torch, name))
    assert every(
        getattr(ours, field) == getattr(theirs, field) for field in ("max", "min", "eps", "tiny", "bits")
    )


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_limits_of_integers(name):
    ours, theirs = mytorch.iinfo(name), torch.iinfo(getattr(torch, name))
    assert every(getattr(ours, field) == getattr(theirs, field) for field in ("max", "min", "bits"))
