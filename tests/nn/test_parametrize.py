"""Parametrizations and normalized weights, beside PyTorch: names in the state_dict, values, training."""

import copy
import warnings

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn.utils import parametrize

KINDS = {
    "parametrizations.weight_norm": {}, "parametrizations.spectral_norm": {"n_power_iterations": 2},
    "weight_norm": {}, "spectral_norm": {},
}
LAYERS = {
    "linear": (lambda m: m.nn.Linear(4, 3), (2, 4)),
    "conv": (lambda m: m.nn.Conv2d(2, 3, 3), (1, 2, 5, 5)),
    "transposed": (lambda m: m.nn.ConvTranspose2d(2, 3, 3), (1, 2, 4, 4)),
}


def normalized(m, name, layer, **options):
    function = m.nn.utils
    for part in name.split("."):
        function = getattr(function, part)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return function(layer, **options)


def trained(m, name, kind, options, state):
    """Everything that can be seen of a normalized layer: names, losses, and what is left without it."""
    make, shape = LAYERS[kind]
    layer = normalized(m, name, make(m), **options)
    names = [list(layer.state_dict()), [key for key, _ in layer.named_parameters()], type(layer).__name__]
    state = state or {key: x.numpy().copy() for key, x in layer.state_dict().items()}
    layer.load_state_dict({key: m.tensor(x) for key, x in state.items()})
    x = m.tensor(np.linspace(-1, 1, np.prod(shape), dtype="float32").reshape(shape))
    optimizer = m.optim.SGD(layer.parameters(), 0.02)
    values = []
    for _ in range(3):
        loss = layer(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    layer.eval()
    values.append(layer(x).sum().item())
    if "." in name:
        m.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    else:
        getattr(m.nn.utils, f"remove_{name}")(layer)
    names += [list(layer.state_dict()), type(layer).__name__]
    return names, [*values, layer(x).sum().item()], state


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("name", KINDS)
def test_as_pytorch(name, kind):
    theirs, expected, state = trained(torch, name, kind, KINDS[name], None)
    ours, values, _ = trained(mytorch, name, kind, KINDS[name], state)
    assert ours == theirs
    np.testing.assert_allclose(values, expected, 1e-4, 1e-6)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize("name", ["weight_norm", "parametrizations.weight_norm"])
def test_shapes_of_the_norms(name, dim):
    layers = [normalized(m, name, m.nn.Linear(4, 3), dim=dim) for m in (mytorch, torch)]
    ours, theirs = ({key: tuple(x.shape) for key, x in layer.state_dict().items()} for layer in layers)
    assert ours == theirs


def test_an_old_weight_norm_is_loaded():
    """Its `weight_g` and `weight_v` are the originals of today; other names are unexpected, as ever."""
    old = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.utils.weight_norm(nn.Linear(3, 2), "bias"))
    assert "0.weight_g" in old.state_dict()
    results = []
    for m in (mytorch, torch):
        new = m.nn.Sequential(m.nn.Linear(4, 3), m.nn.Linear(3, 2))
        m.nn.utils.parametrizations.weight_norm(new[0])
        m.nn.utils.parametrizations.weight_norm(new[1], "bias")
        state = {key: m.tensor(x.numpy()) for key, x in old.state_dict().items()}
        assert not any(new.load_state_dict(state))
        x = m.tensor(np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4))
        results.append(new(x).detach().numpy())
        result = new.load_state_dict({**state, "0.bias_g": m.ones(3)}, strict=False)
        assert result.unexpected_keys == ["0.bias_g"] and not result.missing_keys
    np.testing.assert_allclose(results[0], old(mytorch.tensor(x.numpy())).detach().numpy(), 1e-6, 1e-7)
    np.testing.assert_allclose(*results, 1e-6, 1e-7)


class Symmetric(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x.triu() + x.triu(1).transpose(-1, -2)


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


def test_a_parametrized_weight_is_computed_and_its_original_is_trained():
    layer = nn.Linear(3, 3)
    original = layer.weight
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert layer.parametrizations.weight.original is original
    assert (layer.weight == layer.weight.T).all() and not isinstance(layer.weight, nn.Parameter)
    layer(mytorch.ones(1, 3)).sum().backward()
    assert original.grad is not None
    assert parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(layer, "bias")
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        layer.weight = mytorch.zeros(3, 3)


def test_parametrizations_are_chained_and_assigned_through():
    layer = nn.Linear(2, 2)
    before = layer.weight.tolist()
    for _ in range(2):
        parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.weight.tolist() == before
    layer.weight = mytorch.full((2, 2), 8.0)
    assert layer.weight.tolist() == [[8.0, 8.0], [8.0, 8.0]]
    assert layer.parametrizations.weight.original.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight.tolist() == [[2.0, 2.0], [2.0, 2.0]] and type(layer) is nn.Linear


def test_cached_computes_once():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    symmetric = layer.parametrizations.weight[0]
    before = symmetric.calls
    with parametrize.cached(), parametrize.cached():
        assert layer.weight is layer.weight
    assert symmetric.calls == before + 1 and layer.weight is not layer.weight


def test_a_copy_is_independent_and_a_buffer_stays_one():
    layer = nn.BatchNorm1d(2)
    parametrize.register_parametrization(layer, "running_mean", Doubled())
    other = copy.deepcopy(layer)
    other.running_mean = mytorch.ones(2)
    assert layer.running_mean.tolist() == [0.0, 0.0] and other.running_mean.tolist() == [1.0, 1.0]
    assert "parametrizations.running_mean.original" in dict(layer.named_buffers())


class Flat(nn.Module):
    def forward(self, x):
        return x.reshape(-1)


def test_errors():
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", Flat())
    assert type(layer) is nn.Linear and layer.weight.shape == (2, 2)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "wait", Flat())
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(layer, "weight")
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        nn.utils.remove_weight_norm(layer)
    nn.utils.spectral_norm(layer)
    with pytest.raises(RuntimeError, match="Cannot register two spectral_norm"):
        nn.utils.spectral_norm(layer)
