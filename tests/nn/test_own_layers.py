"""Layers that PyTorch hasn't, against those that they are made of."""

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import mytorch
from mytorch import nn
from tests.each import each
from tests.oracle import check

ACTIVATIONS = {
    "gelu": TF.gelu,
    "gelu_tanh": lambda x: TF.gelu(x, approximate="tanh"),
    "relu": TF.relu,
    "silu": TF.silu,
}


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (4,), (2, 3, 4), (0, 4)], ids=str)
@each("activation", ACTIVATIONS)
def test_linear_activation(activation, shape, bias):
    linear = torch.nn.Linear(4, 37, bias=bias)
    ours = nn.LinearActivation(4, 37, bias, activation)
    ours.load_state_dict(linear.state_dict())  # the names are Linear's
    check(ours, lambda x: ACTIVATIONS[activation](linear(x)), normal(*shape), rtol=1e-5, atol=1e-6)
    for p, q in zip(ours.parameters(), linear.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_linear_activation_says_what_it_is_and_what_it_can():
    layer = nn.LinearActivation(2, 3, activation="silu")
    assert repr(layer) == "LinearActivation(in_features=2, out_features=3, bias=True, activation='silu')"
    with pytest.raises(ValueError, match="activation is one of gelu, gelu_tanh, relu, silu; got 'tanh'"):
        nn.LinearActivation(2, 3, activation="tanh")(mytorch.ones(1, 2))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8), (0, 8)], ids=str)
def test_add_layer_norm(shape, bias):
    norm = torch.nn.LayerNorm(8, bias=bias)
    torch.nn.init.normal_(norm.weight)
    ours = nn.AddLayerNorm(8, bias=bias)
    ours.load_state_dict(norm.state_dict())
    arrays = normal(*shape), normal(*shape)[..., ::-1].copy()
    a, b = (mytorch.tensor(array, requires_grad=True) for array in arrays)
    c, d = (torch.tensor(array, requires_grad=True) for array in arrays)
    y, total = ours(a, b)
    mine, his = y * 2 + total * total, norm(c + d) * 2 + (c + d) * (c + d)
    np.testing.assert_allclose(mine.detach().numpy(), his.detach().numpy(), rtol=1e-5, atol=1e-5)
    mine.sum().backward()
    his.sum().backward()
    pairs = [(a, c), (b, d), *zip(ours.parameters(), norm.parameters(), strict=True)]
    for p, q in pairs:
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5)


def attention_inputs():
    return [normal(2, 3, 5, 4)[:, i] for i in range(3)]


@pytest.mark.parametrize("choice", [{}, {"auto": True}, {"fused": False}], ids=str)
def test_scaled_dot_product(choice):
    layer = nn.ScaledDotProduct(0.5, 0.3, **choice)
    mask = np.tril(np.ones((5, 5), bool))
    attention = TF.scaled_dot_product_attention
    check(layer.eval(), lambda q, k, v: attention(q, k, v, scale=0.3), *attention_inputs())
    for ours in (lambda *x: layer(*x, mytorch.tensor(mask)), lambda *x: layer(*x, is_causal=True)):
        check(ours, lambda q, k, v: attention(q, k, v, torch.tensor(mask), scale=0.3), *attention_inputs())
    x = mytorch.ones(1, 8, 4)
    assert (layer(x, x, x) == 1).all() and not (layer.train()(x, x, x) == 1).all()
    assert repr(layer) == "ScaledDotProduct(dropout=0.5, scale=0.3, enable_gqa=False)"


@pytest.mark.parametrize("choice", [{}, {"auto": True}, {"fused": False}], ids=str)
def test_sliding_window_attention(choice):
    layer = nn.SlidingWindowAttention(2, **choice)
    mask = torch.ones(5, 5, dtype=torch.bool).tril().triu(-1)
    check(layer, lambda *x: TF.scaled_dot_product_attention(*x, mask), *attention_inputs())
    assert repr(layer) == "SlidingWindowAttention(window=2, dropout=0.0, scale=None, enable_gqa=False)"
    with pytest.raises(ValueError, match="^SlidingWindowAttention: window must be positive, got 0$"):
        nn.SlidingWindowAttention(0)


def test_the_original_s_names():
    assert nn.GeLU is nn.GELU and nn.Layernorm is nn.LayerNorm


@pytest.mark.parametrize("options", [{}, {"affine": True}, {"track_running_stats": True, "momentum": 0.3}])
@pytest.mark.parametrize("shape", [(4, 6), (5, 4, 6), (5, 4, 2, 3), (5, 4, 2, 1, 3)], ids=str)
def test_instance_norm_takes_its_dims_from_the_input(shape, options):
    theirs = getattr(torch.nn, f"InstanceNorm{max(len(shape) - 2, 1)}d")(4, **options)
    ours = nn.InstanceNorm(4, **options)
    ours.load_state_dict(theirs.state_dict())  # the names are PyTorch's
    for mode in (True, False):
        ours.train(mode), theirs.train(mode)
        check(ours, theirs, normal(*shape), rtol=1e-4, atol=1e-5)
    for p, q in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5, atol=1e-6)


def test_instance_norm_says_what_it_is_and_what_it_takes():
    assert repr(nn.InstanceNorm(4)) == repr(torch.nn.InstanceNorm1d(4)).replace("1d", "")
    with pytest.raises(ValueError, match=r"expected 2D or 3D or 4D or 5D input \(got 1D input\)"):
        nn.InstanceNorm(4)(mytorch.ones(4))
    with pytest.raises(ValueError, match="the input has 3 channels, num_features is 4"):
        nn.InstanceNorm(4, affine=True)(mytorch.ones(2, 3, 5))
