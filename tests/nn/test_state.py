"""state_dict and load_state_dict: PyTorch's names and rules, its own modules as the oracle."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor
from tests.nn.nets import net


@pytest.fixture
def both():
    return net(mytorch), net(torch)


@pytest.fixture
def model():
    return net(mytorch)


def test_a_pytorch_state_dict_gives_the_same_function(both):
    ours, theirs = both
    assert repr(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    tokens = np.array([[0, 3, 4]])
    y, want = ours(Tensor(tokens)), theirs(torch.from_numpy(tokens))
    np.testing.assert_allclose(y.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    y.sum().backward()
    want.sum().backward()
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def torch_parameter(a):
    return torch.nn.Parameter(torch.tensor(a))


@pytest.mark.parametrize("kind", [Tensor, Array, np.asarray, torch.tensor, torch_parameter])
def test_values_may_be_of_any_kind(model, kind):
    state = {name: kind(value.numpy() + 1) for name, value in model.state_dict().items()}
    before = model.scale
    model.load_state_dict(state)
    assert model.scale is before
    np.testing.assert_array_equal(model.scale.detach().numpy(), [2, 2, 2, 2])


def test_the_state_shares_memory_and_a_loaded_copy_does_not(model):
    state = model.state_dict()
    assert not any(value.requires_grad for value in state.values())
    assert state["head.weight"].data_ptr() == model.embed.weight.data_ptr()
    with mytorch.no_grad():
        model.scale += 1
    np.testing.assert_array_equal(state["scale"].numpy(), [2, 2, 2, 2])
    other = net(mytorch)
    other.load_state_dict(state)
    assert other.scale.data_ptr() != model.scale.data_ptr()
    assert model.state_dict(keep_vars=True)["scale"] is model.scale
    into = {"x": 1}
    assert model.state_dict(destination=into, prefix="p.") is into and "p.scale" in into and "x" in into


def test_dtypes_are_cast_and_with_assign_taken_over(model):
    state = {name: value.double() + 1 for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    assert model.scale.dtype == mytorch.float32
    parameter = model.scale
    model.load_state_dict(state, assign=True)
    assert model.scale is parameter and parameter.dtype == mytorch.float64 and parameter.requires_grad
    assert parameter.data_ptr() == state["scale"].data_ptr()
    (parameter * 2).sum().backward()
    assert parameter.grad.dtype == mytorch.float64


def test_what_does_not_fit_is_listed_and_nothing_is_changed(model):
    state = {name: value.numpy() + 1 for name, value in model.state_dict().items()}
    del state["body.0.bias"]
    state.update({"extra": np.ones(1), "body.0.weight": np.ones((3, 4)), "seen": "text"})
    with pytest.raises(RuntimeError) as error:
        model.load_state_dict(state)
    for message in (
        r"Error(s) in loading state_dict for Net:", 'Missing key(s) in state_dict: "body.0.bias".',
        'Unexpected key(s) in state_dict: "extra".',
        "size mismatch for body.0.weight: copying a param with shape Size([3, 4]) from checkpoint, "
        "the shape in current model is Size([4, 4]).",
        "seen: expected a Tensor or an array from checkpoint but received str.",
    ):
        assert message in str(error.value)
    np.testing.assert_array_equal(model.scale.detach().numpy(), [1, 1, 1, 1])
    with pytest.raises(TypeError, match="dict-like, got list"):
        model.load_state_dict([])


def test_not_strict_loads_what_there_is(both):
    states = [{"scale": library.full((4,), 7.0), "extra": library.ones(1)} for library in (mytorch, torch)]
    got, want = (m.load_state_dict(s, strict=False) for m, s in zip(both, states, strict=True))
    assert tuple(got) == tuple(want)
    assert repr(got).startswith("IncompatibleKeys(missing_keys=['seen'")
    np.testing.assert_array_equal(both[0].scale.detach().numpy(), [7, 7, 7, 7])
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        both[0].load_state_dict({"scale": np.ones(3)}, strict=False)


def test_loading_is_noticed_by_a_graph_that_needs_the_old_values(model):
    y = model(mytorch.tensor([1]))
    model.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
