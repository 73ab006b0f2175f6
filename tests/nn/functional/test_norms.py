"""Normalization beyond values and gradients: running statistics, instance norm, dtypes, wrong calls."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from tests.nn.functional.test_parity import call, variants
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def positive(*shape):
    return np.asarray(rng.uniform(0.1, 1, shape), "float32")


def run(library, name, x, mean, var, **kwargs):
    """The result and the running statistics after it."""
    tensors = [library.tensor(a) for a in (x, mean, var)]
    kwargs = {key: library.tensor(a) if isinstance(a, np.ndarray) else a for key, a in kwargs.items()}
    y = getattr(library.nn.functional, name)(*tensors, **kwargs)
    return [t.numpy() for t in (y, *tensors[1:])]


RUNNING = {  # "function, what": (input, keyword arguments)
    "batch_norm": (normal(6, 4), {"training": True}),
    "batch_norm momentum": (normal(3, 4, 5), {"training": True, "momentum": 0.7}),
    "batch_norm images": (normal(3, 4, 2, 3), {"training": True, "weight": normal(4), "bias": normal(4)}),
    "batch_norm momentum 0": (normal(3, 4, 2, 3), {"training": True, "momentum": 0.0}),
    "batch_norm momentum 1": (normal(3, 4, 2, 3), {"training": True, "momentum": 1.0}),
    "batch_norm empty": (normal(0, 4, 5), {"training": True}),
    "batch_norm eval": (normal(3, 4, 5), {"training": False, "momentum": 0.7}),
    "batch_norm double": (normal(3, 4, 5).astype("d"), {"training": True}),
    "instance_norm": (normal(3, 4, 5), {}),
    "instance_norm images": (normal(3, 4, 5, 2), {"momentum": 0.7, "weight": normal(4), "bias": normal(4)}),
    "instance_norm eval": (normal(3, 4, 5), {"use_input_stats": False, "weight": normal(4)}),
    "instance_norm one value": (normal(3, 4, 1), {"use_input_stats": False}),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running_statistics(name):
    x, kwargs = RUNNING[name]
    mean, var = normal(4).astype(x.dtype), positive(4).astype(x.dtype)
    mine, theirs = (run(library, name.split()[0], x, mean, var, **kwargs) for library in (mytorch, torch))
    for got, want in zip(mine, theirs, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_running_statistics_of_half_precision(name, dtype):
    """They may stay in float32."""
    x = (3 * normal(3, 4, 50)).astype("float16")
    mean, var = normal(4).astype(dtype), positive(4).astype(dtype)
    kwargs = {"training": True} if name == "batch_norm" else {}
    mine, theirs = (run(library, name, x, mean, var, **kwargs) for library in (mytorch, torch))
    for got, want in zip(mine, theirs, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.astype("f"), want.astype("f"), rtol=4e-3, atol=2e-3)


def test_the_statistics_are_updated_once_and_outside_the_graph():
    x = mytorch.tensor(normal(6, 4), requires_grad=True)
    mean, var = mytorch.zeros(4), mytorch.ones(4)
    y = F.batch_norm(x, mean, var, training=True, momentum=1.0)
    first = mean.numpy().copy()
    (g,) = mytorch.autograd.grad(y.square().sum(), x, create_graph=True)
    g.square().sum().backward()
    assert mean.grad_fn is None and not mean.requires_grad
    np.testing.assert_array_equal(mean.numpy(), first)
    np.testing.assert_allclose(first, x.detach().numpy().mean(0), rtol=1e-5, atol=1e-6)


INSTANCES = {
    "affine": ((normal(3, 4, 5), None, None, normal(4), normal(4)), {}),
    "weight only": ((normal(3, 4, 5), None, None, normal(4)), {"eps": 0.1}),
    "bias only": ((normal(3, 4, 5), None, None, None, normal(4)), {}),
    "images": ((normal(3, 4, 2, 3),), {}),
    "empty": ((normal(0, 4, 5),), {}),
}


@pytest.mark.parametrize(("args", "kwargs"), INSTANCES.values(), ids=INSTANCES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_instance_norm(args, kwargs, dtype):
    args = [None if a is None else a.astype(dtype) for a in args]
    check(F.instance_norm, torch.nn.functional.instance_norm, *args, **kwargs)


def test_batch_norm_of_a_transposed_image():
    x = np.moveaxis(normal(2, 3, 5, 4), -1, 1)  # channels last
    check(
        lambda *a: F.batch_norm(a[0], None, None, *a[1:], training=True),
        lambda *a: torch.nn.functional.batch_norm(a[0], None, None, *a[1:], training=True),
        x, normal(4), normal(4),
    )


def test_the_epsilon_of_rms_norm_is_that_of_the_dtype():
    x = np.full((1, 4), 1e-7, "float64")
    for dtype in ("float32", "float64"):
        check(F.rms_norm, torch.nn.functional.rms_norm, x.astype(dtype), (4,))


@pytest.mark.parametrize("weight", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_weight_of_rms_norm_may_have_any_dtype(dtype, weight):
    x, w = normal(3, 4).astype(dtype), normal(4).astype(weight)
    tolerance = 2e-3 if "float16" in (dtype, weight) else 2e-5
    check(F.rms_norm, torch.nn.functional.rms_norm, x, (4,), w, rtol=tolerance, atol=tolerance)


def spoiled(value):
    x = normal(3, 4, 5)
    x[0, 1, 2] = value
    return x


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "rms_norm", "layer_norm"])
def test_what_is_not_finite_spoils_what_shares_its_statistics(name, value):
    rest = {"batch_norm": (None, None), "group_norm": (2,), "rms_norm": ((5,),), "layer_norm": ((5,),)}[name]
    kwargs = {"training": True} if name == "batch_norm" else {}
    for _, choice in variants(name):
        got = getattr(F, name)(mytorch.tensor(spoiled(value)), *rest, **kwargs, **choice).numpy()
        want = getattr(torch.nn.functional, name)(torch.tensor(spoiled(value)), *rest, **kwargs).numpy()
        spoilt = np.isnan(want).reshape(3, -1) if value != value else ~np.isfinite(want).reshape(3, -1)
        assert spoilt.any() and not spoilt.all()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


X, W4, W3 = np.ones((3, 4, 5), "f"), np.ones(4, "f"), np.ones(3, "f")
INTEGERS = np.ones((3, 4, 5), int)

WRONG = {  # "function, what": (arguments, keyword arguments, message)
    "batch_norm one value": ([X[:1, :, 0], None, None], {"training": True}, r"more than 1 value .*\(1, 4\)"),
    "batch_norm eval": ([X, None, None], {}, "running_mean must be defined in evaluation mode"),
    "batch_norm eval var": ([X, W4, None], {}, "running_var must be defined in evaluation mode"),
    "batch_norm one of two": ([X, W4, None], {"training": True}, "must both be given, or neither"),
    "batch_norm 1-d": ([W4, None, None], {"training": True}, r"dim of channels, got shape \(4,\)|got \(4,\)"),
    "batch_norm eps 0": ([X, None, None], {"training": True, "eps": 0.0}, "positive .*, but got 0"),
    "batch_norm eps": ([X, W4, W4], {"eps": -1.0}, "eps must be non-negative, but got -1"),
    "batch_norm mean": ([X, W3, W3], {}, r"expected running_mean of shape \(4,\), got \(3,\)"),
    "batch_norm weight": (
        [X, None, None, W3], {"training": True}, r"expected weight of shape \(4,\), got \(3,\)",
    ),
    "batch_norm bias": (
        [X, None, None, None, W3], {"training": True}, r"expected bias of shape \(4,\), got \(3,\)",
    ),
    "batch_norm dtype": ([X, None, None, W4.astype("d")], {"training": True}, "float32, weight is float64"),
    "batch_norm double": ([X.astype("d"), W4, W4], {}, "input is float64, running_mean is float32"),
    "batch_norm half": ([X, W4.astype("e"), W4], {}, "input is float32, running_mean is float16"),
    "batch_norm int": ([INTEGERS, None, None], {"training": True}, "not implemented for dtype int64"),
    "group_norm groups": ([X, 3], {}, "divisible by num_groups.*num_groups=3"),
    "group_norm 0": ([X, 0], {}, "num_groups is 0"),
    "group_norm negative": ([X, -1], {}, "greater than 0, got -1"),
    "group_norm weight": ([X, 2, W3], {}, r"expected weight of shape \(4,\), got \(3,\)"),
    "group_norm bias": ([X, 2, W4, W3], {}, r"expected bias of shape \(4,\), got \(3,\)"),
    "group_norm matrix": ([X, 2, W4[:, None]], {}, r"expected weight of shape \(4,\), got \(4, 1\)"),
    "group_norm 1-d": ([W4, 2], {}, r"at least 2 dimensions .* \(4,\)"),
    "group_norm one value": ([X[:1, :, 0], 4], {}, r"more than 1 value per group, got \(1, 4\)"),
    "group_norm dtype": ([X, 2, W4.astype("d"), W4], {}, "float32, weight is float64"),
    "group_norm int": ([INTEGERS, 2], {}, "not implemented for dtype int64"),
    "instance_norm one value": ([X[..., :1]], {}, r"more than 1 spatial element .*\(3, 4, 1\)"),
    "instance_norm eval": ([X], {"use_input_stats": False}, "running_mean and running_var to be defined"),
    "instance_norm one of two": ([X, W4, None], {}, "must both be given, or neither"),
    "instance_norm weight": ([X, None, None, W3], {}, r"expected weight of shape \(4,\), got \(3,\)"),
    "instance_norm mean": ([X, W3, W3], {}, r"expected running_mean of shape \(4,\), got \(3,\)"),
    "instance_norm int": ([INTEGERS], {}, "not implemented for dtype int64"),
    "rms_norm shape": ([X, (4,)], {}, r"normalized_shape=\[4\], .* but got \[3, 4, 5\]"),
    "rms_norm empty shape": ([X, ()], {}, "at least 1-dimensional"),
    "rms_norm int shape": ([X, 5], {}, "must be a tuple of ints, got 5"),
    "rms_norm weight": ([X, (5,), W4], {}, r"weight of shape \[4\]"),
    "rms_norm int": ([INTEGERS, (5,)], {}, "not implemented for dtype int64"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    (args, kwargs, message), function = WRONG[name], name.split()[0]
    choices = [c for _, c in variants(function)] if function in F.REGISTRY else [{}]
    for choice in choices:
        ours, theirs = call(F, function, kwargs, **choice), call(torch.nn.functional, function, kwargs)
        fails_alike(ours, theirs, *args, match=message)


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_have_no_gradient(training):
    x, mean = mytorch.ones(3, 4), mytorch.zeros(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="not differentiable with respect to running_mean"):
        F.batch_norm(x, mean, mytorch.ones(4), training=training)


@pytest.mark.parametrize("shape", [(1,), (3,), ()])
def test_batch_norm_needs_a_dim_of_channels(shape):
    """Also of one element, and with statistics and weights of one channel."""
    x, one = mytorch.ones(shape), [mytorch.ones(1)] * 4
    with pytest.raises(RuntimeError, match=r"running_mean of shape \(0,\), got \(1,\)"):
        F.batch_norm(x, *one)
    for statistics in (one, [None, None]):
        with pytest.raises(IndexError, match="an input with a dim of channels"):
            F.batch_norm(x, *statistics, training=True)
