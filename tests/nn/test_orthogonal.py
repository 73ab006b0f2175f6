"""`parametrizations.orthogonal` beside PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn.utils.parametrizations import orthogonal

MAPS = ["matrix_exp", "cayley", "householder"]
SHAPES = [(3, 3), (5, 3), (3, 5), (1, 1), (4, 1), (2, 4, 3)]
ORIGINAL = "parametrizations.weight.original"


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def holder(m, weight):
    module = m.nn.Module()
    module.weight = m.nn.Parameter(m.tensor(weight))
    return module


def both(weight, *args, **kwargs):
    theirs = torch.nn.utils.parametrizations.orthogonal(holder(torch, weight), *args, **kwargs)
    return orthogonal(holder(mytorch, weight), *args, **kwargs), theirs


def is_orthogonal(q):
    tall = q if q.shape[-2] >= q.shape[-1] else q.swapaxes(-1, -2)
    return np.allclose(tall.swapaxes(-1, -2).conj() @ tall, np.eye(tall.shape[-1]), atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape, name):
    ours, theirs = both(normal(shape), "weight", name)
    state = {key: x.numpy().copy() for key, x in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    state[ORIGINAL] += 0.3 * np.tril(normal(shape, 1), -1)  # on the diagonal are the signs of the last map
    results = []
    for m, module in ((mytorch, ours), (torch, theirs)):
        module.load_state_dict({key: m.tensor(x) for key, x in state.items()})
        q = module.weight
        (q * m.tensor(normal(shape, 2))).sum().backward()
        results.append([q.detach().numpy(), module.parametrizations.weight.original.grad.numpy()])
    assert is_orthogonal(results[0][0])
    for mine, his in zip(*results, strict=True):
        np.testing.assert_allclose(mine, his, 1e-9, 1e-12)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_value_is_the_orthogonalized_weight(shape, name):
    ours, theirs = (x.weight.detach().numpy() for x in both(normal(shape), "weight", name))
    assert is_orthogonal(ours)
    np.testing.assert_allclose(ours, theirs, 1e-9, 1e-12)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 1)])
def test_reflections_without_a_base(shape):
    unit = np.eye(*shape[-2:]) + np.zeros(shape)
    for weight in (normal(shape), unit, -unit):
        ours, theirs = both(weight, "weight", "householder", use_trivialization=False)
        np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy(), 1e-9, 1e-12)
        for key, value in theirs.state_dict().items():
            both_reflectors = (
                np.tril(x.numpy() if shape[-2] >= shape[-1] else x.numpy().swapaxes(-1, -2))
                for x in (ours.state_dict()[key], value)
            )
            np.testing.assert_allclose(*both_reflectors, 1e-9, 1e-12)


def test_a_value_is_assigned():
    ours, theirs = both(normal((3, 3)))
    value = np.linalg.qr(normal((3, 3), 3))[0]
    for m, module in ((mytorch, ours), (torch, theirs)):
        module.weight = m.tensor(value)
        np.testing.assert_allclose(module.weight.detach().numpy(), value, 1e-9, 1e-12)
    with pytest.raises(ValueError, match=r"Expected a matrix .* of shape Size\(\[3, 3\]\)"):
        ours.weight = mytorch.ones(2, 3)


def test_complex_matrices():
    """Square ones: of a tall one the part that completes it is random."""
    weight = normal((3, 3)) + 1j * normal((3, 3), 1)
    for name in ("matrix_exp", "cayley", None):
        ours, theirs = (x.weight.detach().numpy() for x in both(weight, "weight", name))
        assert is_orthogonal(ours)
        np.testing.assert_allclose(ours, theirs, 1e-9, 1e-12)
    assert is_orthogonal(orthogonal(holder(mytorch, weight[:, :2])).weight.detach().numpy())


def test_training_keeps_it_orthogonal():
    module = orthogonal(holder(mytorch, normal((6, 4))))
    optimizer = mytorch.optim.SGD(module.parameters(), 0.1)
    losses = []
    for _ in range(10):
        loss = (module.weight - mytorch.tensor(np.eye(6, 4)[:, ::-1].copy())).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and is_orthogonal(module.weight.detach().numpy())


def test_errors():
    for match, weight, args in (
        ("has no parameter or buffer", normal((2, 2)), ("wait",)),
        ("Got a tensor of 1 dimensions", normal((2,)), ()),
        ("has to be one of", normal((2, 2)), ("weight", "exp")),
        ("does not support complex", 1j * normal((2, 2)), ("weight", "householder")),
    ):
        for m in (mytorch, torch):
            with pytest.raises(ValueError, match=match):
                m.nn.utils.parametrizations.orthogonal(holder(m, weight), *args)
    for m in (mytorch, torch):  # the weight itself is then the original, which needn't be orthogonal
        module = m.nn.utils.parametrizations.orthogonal(holder(m, normal((2, 2))), use_trivialization=False)
        with pytest.raises(NotImplementedError, match="not possible to assign"):
            module.weight = m.eye(2)
