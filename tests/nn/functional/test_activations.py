"""Activations beside their values: in-place forms, names in the package, randomness, second gradients."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, nn
from mytorch.autograd import grad, gradgradcheck
from mytorch.nn import functional as F
from tests.oracle import check

rng = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return (3 * rng.standard_normal(shape)).astype(dtype)


# name: arguments after the input
INPLACE = {
    "relu": (), "relu6": (), "leaky_relu": (0.2,), "rrelu": (0.2, 0.2), "threshold": (0.1, 2.0),
    "hardtanh": (-0.5, 2.0), "hardsigmoid": (), "hardswish": (), "elu": (0.7,), "selu": (), "celu": (0.7,),
    "silu": (), "mish": (),
}  # fmt: skip


def of_a_copy(library, name, args, **kwargs):
    return lambda x: getattr(library, name)(x * 1, *args, **kwargs)


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    """The memory of the input is overwritten, and the gradient goes through the write."""
    args = INPLACE[name]
    mine, theirs = (of_a_copy(lib, name, args, inplace=True) for lib in (F, torch.nn.functional))
    check(mine, theirs, normal(20))
    x = Tensor(normal(20))
    assert getattr(F, name)(x, *args, inplace=True) is x


UNDERSCORED = [name for name in INPLACE if hasattr(torch.nn.functional, f"{name}_")]


@pytest.mark.parametrize("name", UNDERSCORED)
def test_names_with_an_underscore_write_in_place(name):
    args, name = INPLACE[name], f"{name}_"
    for mine, theirs in ((F, torch.nn.functional), (mytorch, torch)):
        if hasattr(theirs, name):
            check(of_a_copy(mine, name, args), of_a_copy(theirs, name, args), normal(20))
            x = Tensor(normal(20))
            assert getattr(mine, name)(x, *args) is x


def test_there_are_all_names_with_an_underscore():
    assert UNDERSCORED == ["relu", "leaky_relu", "rrelu", "threshold", "hardtanh", "elu", "selu", "celu"]


PACKAGE = {
    "relu": (), "sigmoid": (), "tanh": (), "selu": (), "celu": (0.5,), "rrelu": (0.2, 0.2),
    "threshold": (0.1, 2.0), "hardshrink": (0.7,), "softmax": (0,), "log_softmax": (-1,),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKAGE)
def test_names_in_the_package_and_methods(name):
    args, x = PACKAGE[name], normal(4, 5)
    check(getattr(mytorch, name), getattr(torch, name), x, *args)
    assert hasattr(Tensor, name) == hasattr(torch.Tensor, name)
    if hasattr(Tensor, name):
        check(lambda x: getattr(x, name)(*args), lambda x: getattr(x, name)(*args), x)


def test_prelu_as_a_method():
    x, weight = normal(4, 3), normal(3)
    check(mytorch.prelu, torch.prelu, x, weight)
    check(lambda x, w: x.prelu(w), lambda x, w: x.prelu(w), x, weight)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_of_another_dtype(name):
    mine, theirs = getattr(F, name), getattr(torch.nn.functional, name)
    for x in (normal(3, 4), normal(3, 4, dtype="int64"), normal(3, 4, dtype="float16")):
        for dtype, dim in (("float64", 1), ("float16", 0)):
            check(
                lambda t, d=dtype, dim=dim: mine(t, dim, dtype=getattr(mytorch, d)),
                lambda t, d=dtype, dim=dim: theirs(t, dim, dtype=getattr(torch, d)),
                x, grad=x.dtype == "float32", rtol=2e-3, atol=2e-3,
            )  # fmt: skip


MODULES = {"softmax": nn.Softmax, "log_softmax": nn.LogSoftmax, "softmin": nn.Softmin}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 2, 2)], ids=str)
def test_the_dim_that_nobody_named_is_warned_of(name, shape):
    x = np.asarray(normal(*shape), "float32")
    with pytest.warns(UserWarning, match="implicit choice of dim") as caught:
        got = getattr(F, name)(Tensor(x))
        np.testing.assert_array_equal(MODULES[name]()(Tensor(x)).numpy(), got.numpy())
    assert [w.filename for w in caught] == [__file__] * 2
    with pytest.warns(UserWarning):
        want = getattr(torch.nn.functional, name)(torch.from_numpy(x))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


# Randomized leaky ReLU.


def test_rrelu_draws_a_slope_for_each_element():
    x = Tensor(np.full(40_000, -2.0, "float32"), requires_grad=True)
    mytorch.manual_seed(0)
    y = F.rrelu(x, 0.1, 0.5, training=True)
    slopes = y.detach().numpy() / -2
    assert abs(slopes.mean() - 0.3) < 5 * 0.4 / np.sqrt(12 * slopes.size)
    assert 0.1 <= slopes.min() < 0.101 and 0.499 < slopes.max() <= 0.5
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-5)
    mytorch.manual_seed(0)
    np.testing.assert_array_equal(F.rrelu(x, 0.1, 0.5, True).detach().numpy(), y.detach().numpy())
    above = Tensor(np.abs(normal(9)))
    np.testing.assert_array_equal(F.rrelu(above, training=True).numpy(), above.numpy())


def test_rrelu_module_draws_in_training_only():
    layer, x = nn.RReLU(), Tensor(-np.ones(9, "float32"))
    assert len(set(layer(x).numpy().tolist())) > 1
    np.testing.assert_allclose(layer.eval()(x).numpy(), -(1 / 8 + 1 / 3) / 2, rtol=1e-6)


# SwiGLU, which PyTorch doesn't have.


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_swiglu(dim):
    def theirs(x):
        a, b = x.chunk(2, dim)
        return torch.nn.functional.silu(a) * b

    check(lambda x: F.swiglu(x, dim), theirs, normal(4, 6, 2))


def test_swiglu_refuses():
    for x, error, match in (
        (mytorch.ones(3), RuntimeError, "swiglu.*even size, but dim 0 is of size 3"),
        (mytorch.ones(()), RuntimeError, "0-d"),
        (mytorch.ones(2, dtype=mytorch.int64), NotImplementedError, "int64"),
        ([1.0, 2.0], TypeError, "expected a Tensor, got list"),
    ):
        with pytest.raises(error, match=match):
            F.swiglu(x)


# Modules.


def test_hardtanh_under_its_old_names():
    with pytest.warns(FutureWarning, match="min_val"):
        layer = nn.Hardtanh(min_value=-2.0, max_value=3.0)
    assert (layer.min_val, layer.max_val) == (-2, 3)
    with pytest.raises(AssertionError, match="max_val must be above min_val, got 1 and 2"):
        nn.Hardtanh(2, 1)


def test_softmax2d_refuses_other_shapes():
    with pytest.raises(ValueError, match="3D or 4D, got 2D"):
        nn.Softmax2d()(mytorch.ones(2, 3))


def test_the_slopes_of_prelu_start_and_restart_alike():
    layer = nn.PReLU(3, init=0.4)
    assert layer.weight.tolist() == pytest.approx([0.4] * 3)
    with mytorch.no_grad():
        layer.weight.add_(1)
    layer.reset_parameters()
    assert layer.weight.tolist() == pytest.approx([0.4] * 3)


def test_inplace_modules_write_in_place():
    for layer in (nn.ReLU(True), nn.Hardtanh(inplace=True), nn.ELU(0.5, True), nn.Threshold(0.1, 1, True)):
        x = Tensor(normal(9))
        assert layer(x) is x and "inplace=True" in repr(layer)


# Second gradients, also where the first is handed-derived: what both variants give is what differences give.


@pytest.mark.parametrize("choice", [{"auto": True}, {}], ids=["reference", "manual"])
@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "silu", "gelu", "mish", "softplus", "logsigmoid", "softsign", "elu", "celu"]
)
def test_second_gradients(name, choice):
    x = Tensor(np.array([-30, -2.5, -0.4, 0.3, 1.7, 4, 30]), requires_grad=True)
    assert gradgradcheck(lambda x: getattr(F, name)(x, **choice), [x])


@pytest.mark.parametrize("name", ["softplus", "logsigmoid", "mish", "silu", "sigmoid", "tanh", "tanhshrink"])
def test_second_gradients_of_extreme_values_are_numbers(name):
    x = Tensor(np.array([-1e4, -800.0, 800, 1e4]), requires_grad=True)
    (slope,) = grad(getattr(F, name)(x).sum(), x, create_graph=True)
    (second,) = grad(slope.sum(), x)
    np.testing.assert_allclose(second.numpy(), 0, atol=1e-12)
