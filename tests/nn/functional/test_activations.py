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
}
KERNELS = ("relu", "leaky_relu", "silu", "squared_relu")


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


@pytest.mark.parametrize("choice", [{"auto": True}, {"fused": False}, {"fused": True}], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_in_place_in_every_variant(name, choice):
    for values in (normal(20), normal(300, 400)):
        x, want = Tensor(values.copy(), requires_grad=True), Tensor(values, requires_grad=True)
        y, other = x * 1, getattr(F, name)(want * 1, auto=True)
        assert getattr(F, name)(y, inplace=True, **choice) is y
        np.testing.assert_allclose(y.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)
        for t in (y, other):
            t.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), want.grad.numpy(), rtol=1e-5, atol=1e-6)


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
}


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
            )


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


# What PyTorch doesn't have.


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_gated_refuse(name):
    for x, error, match in (
        (mytorch.ones(3), RuntimeError, f"{name}.*even size, but dim 0 is of size 3"),
        (mytorch.ones(()), RuntimeError, "0-d"),
        (mytorch.ones(2, dtype=mytorch.int64), NotImplementedError, "int64"),
        ([1.0, 2.0], TypeError, "must be a Tensor, got list"),
    ):
        with pytest.raises(error, match=match):
            getattr(F, name)(x)
    with pytest.raises(IndexError, match="2"):
        getattr(F, name)(mytorch.ones(2, 2), 2)


def test_geglu_refuses_other_forms():
    with pytest.raises(RuntimeError, match=r"gelu\(\): .* none or tanh, got 'erf'"):
        F.geglu(mytorch.ones(2), approximate="erf")


@pytest.mark.parametrize(
    ("layer", "function"),
    [
        (nn.SwiGLU(), F.swiglu), (nn.SwiGLU(0), lambda x: F.swiglu(x, 0)), (nn.GeGLU(), F.geglu),
        (nn.GeGLU(0, "tanh"), lambda x: F.geglu(x, 0, "tanh")), (nn.SquaredReLU(), F.squared_relu),
        (nn.LeakyReLU(0.3, fused=False), lambda x: F.leaky_relu(x, 0.3, fused=False)),
    ],
)
def test_modules_call_their_function(layer, function):
    x = Tensor(normal(4, 6))
    np.testing.assert_array_equal(layer(x).numpy(), function(x).numpy())


# Rotary embedding.


def test_rotary_keeps_lengths_and_turns_by_the_angle():
    x = Tensor(normal(7, 10, dtype="float64"))
    angles = mytorch.arange(7, dtype="float64")[:, None] * mytorch.tensor(
        [1, 0.5, 0.2, 0.1, 0.01], dtype="float64"
    )
    for interleaved in (False, True):
        y = F.rotary_embedding(x, angles.cos(), angles.sin(), interleaved)
        np.testing.assert_allclose(y.norm(dim=-1).numpy(), x.norm(dim=-1).numpy())
        np.testing.assert_array_equal(y[0].numpy(), x[0].numpy())
        back = F.rotary_embedding(y, angles.cos(), -angles.sin(), interleaved)
        np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)
    unit = F.rotary_embedding(mytorch.tensor([[1.0, 0.0]]), mytorch.zeros(1, 1), mytorch.ones(1, 1))
    assert unit.tolist() == [[0, 1]]


def test_rotary_takes_float32_angles_for_half_precision():
    x, angles = Tensor(normal(3, 4, dtype="float16")), Tensor(normal(3, 2))
    for choice in ({"auto": True}, {"fused": False}, {}):
        y = F.rotary_embedding(x, angles.cos(), angles.sin(), **choice)
        assert y.dtype == "float16"
        want = F.rotary_embedding(x.float(), angles.cos(), angles.sin())
        np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=1e-3, atol=1e-3)


def test_rotary_refuses():
    x, ok = mytorch.ones(5, 4), mytorch.ones(5, 2)
    for args, match in (
        ((mytorch.ones(5, 3), ok, ok), "even D, got \\(5, 3\\)"),
        ((mytorch.ones(4), ok, ok), "even D, got \\(4,\\)"),
        ((x, mytorch.ones(5, 4), ok), "cos \\(5, 4\\), sin \\(5, 2\\) can't be broadcast to \\(5, 2\\)"),
        ((x, ok, mytorch.ones(2, 5, 2)), "can't be broadcast"),
        ((x, ok.double(), ok), "float32 doesn't go with cos float64, sin float32"),
        ((x, ok, ok.half()), "sin float16"),
    ):
        with pytest.raises(RuntimeError, match=match):
            F.rotary_embedding(*args)


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
