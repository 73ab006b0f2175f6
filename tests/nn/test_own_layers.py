"""Layers that PyTorch hasn't, against those that they are made of."""

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import mytorch
from mytorch import nn
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
@pytest.mark.parametrize("activation", ACTIVATIONS)
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
